// JSON texts to values. Numbers are read exactly as Python reads them: integers stay integers, floats are
// correctly rounded.
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "text/jinja/jinja.hpp"
#include "text/unicode.hpp"

namespace quipu::text::jinja {

namespace {

constexpr int kMaxJsonDepth = 100;

class JsonReader {
 public:
  JsonReader(std::string_view text, std::string_view what) : text_(text), what_(what) {}
  Data run() {
    Data value = read(0);
    skip();
    if (position_ != text_.size()) fail_here("the end of the text");
    return value;
  }

 private:
  [[noreturn]] void fail_here(std::string_view expected) const {
    fail(ErrorCode::invalid_argument, "{} is no valid JSON: expected {} at byte {}", what_, expected,
         position_);
  }
  void skip() {
    while (position_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[position_]) != std::string_view::npos)
      ++position_;
  }
  char peek() {
    skip();
    return position_ < text_.size() ? text_[position_] : '\0';
  }
  bool accept(std::string_view word) {
    if (text_.compare(position_, word.size(), word) != 0) return false;
    position_ += word.size();
    return true;
  }

  Data read(int depth) {
    if (depth > kMaxJsonDepth) fail_here("less nesting");
    switch (peek()) {
      case '{':
        return read_mapping(depth);
      case '[':
        return read_list(depth);
      case '"':
        return Data(read_string());
      case 't':
        if (accept("true")) return Data(true);
        break;
      case 'f':
        if (accept("false")) return Data(false);
        break;
      case 'n':
        if (accept("null")) return Data(nullptr);
        break;
      default:
        return read_number();
    }
    fail_here("a value");
  }

  Data read_list(int depth) {
    Data::List items;
    ++position_;
    if (peek() == ']') return ++position_, Data(std::move(items));
    for (;;) {
      items.push_back(read(depth + 1));
      const char next = peek();
      ++position_;
      if (next == ']') return Data(std::move(items));
      if (next != ',') {
        --position_;
        fail_here("',' or ']'");
      }
    }
  }

  Data read_mapping(int depth) {
    Data::Mapping entries;
    std::unordered_map<std::string, std::size_t> places;
    ++position_;
    if (peek() == '}') return ++position_, Data(std::move(entries));
    for (;;) {
      if (peek() != '"') fail_here("a key");
      std::string key = read_string();
      if (peek() != ':') fail_here("':'");
      ++position_;
      Data value = read(depth + 1);
      const auto [place, fresh] = places.emplace(key, entries.size());
      if (fresh)
        entries.emplace_back(std::move(key), std::move(value));
      else
        entries[place->second].second = std::move(value);
      const char next = peek();
      ++position_;
      if (next == '}') return Data(std::move(entries));
      if (next != ',') {
        --position_;
        fail_here("',' or '}'");
      }
    }
  }

  Data read_number() {
    const std::size_t begin = position_;
    const auto digit = [&] {
      return position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9';
    };
    const auto digits = [&] {
      if (!digit()) fail_here("a value");
      while (digit()) ++position_;
    };
    accept("-");
    if (!accept("0")) digits();
    bool real = false;
    if (accept(".")) {
      real = true;
      digits();
    }
    if (accept("e") || accept("E")) {
      real = true;
      if (!accept("+")) accept("-");
      digits();
    }
    const char* first = text_.data() + begin;
    const char* last = text_.data() + position_;
    std::int64_t integer = 0;
    if (!real && std::from_chars(first, last, integer).ec == std::errc()) return Data(integer);
    double value = 0;
    if (std::from_chars(first, last, value).ec != std::errc()) fail_here("a number in the range of a double");
    return Data(value);
  }

  char32_t read_unit() {
    char32_t value = 0;
    for (int i = 0; i < 4; ++i, ++position_) {
      const char c = position_ < text_.size() ? text_[position_] : '\0';
      if (c >= '0' && c <= '9')
        value = value * 16 + static_cast<char32_t>(c - '0');
      else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        value = value * 16 + static_cast<char32_t>((c | 0x20) - 'a' + 10);
      else
        fail_here("four hexadecimal digits");
    }
    return value;
  }

  std::string read_string() {
    std::string out;
    for (++position_;;) {
      if (position_ >= text_.size()) fail_here("the end of a string");
      const char c = text_[position_++];
      if (c == '"') return out;
      if (c != '\\') {
        if (static_cast<unsigned char>(c) < 0x20) {
          --position_;
          fail_here("an escaped control character");
        }
        out += c;
        continue;
      }
      const char escape = position_ < text_.size() ? text_[position_++] : '\0';
      constexpr std::string_view kPlain = "\"\\/bfnrt";
      constexpr std::string_view kMeaning = "\"\\/\b\f\n\r\t";
      if (const std::size_t known = kPlain.find(escape); escape != '\0' && known != std::string_view::npos) {
        out += kMeaning[known];
      } else if (escape == 'u') {
        char32_t unit = read_unit();
        if (unit >= 0xd800 && unit < 0xdc00 && accept("\\u")) {
          const char32_t low = read_unit();
          if (low >= 0xdc00 && low < 0xe000) {
            unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
          } else {
            append_utf8(out, 0xfffd);
            unit = low;
          }
        }
        append_utf8(out, unit >= 0xd800 && unit < 0xe000 ? 0xfffd : unit);
      } else {
        fail_here("an escape of JSON");
      }
    }
  }

  std::string_view text_, what_;
  std::size_t position_ = 0;
};

}  // namespace

Data parse_json(std::string_view text, std::string_view what) { return JsonReader(text, what).run(); }

}  // namespace quipu::text::jinja
