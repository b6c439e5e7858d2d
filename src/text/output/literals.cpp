#include "text/output/literals.hpp"

#include <fmt/format.h>

#include "text/output/json_scanner.hpp"
#include "text/unicode.hpp"

namespace quipu::text {

namespace {

constexpr std::string_view kGemmaQuote = "<|\"|>";
constexpr int kMaxDepth = 100;

bool is_letter(char c) { return ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_'; }

/// Writes JSON while it reads one of the notations; every method returns false at what it does not know.
class Converter {
 public:
  Converter(std::string_view text, bool gemma) : text_(text), gemma_(gemma) {}

  std::string out;

  bool at_end() {
    skip();
    return position_ == text_.size();
  }

  bool value(int depth = 0) {
    if (depth > kMaxDepth) return false;
    const char next = peek();
    if (gemma_ && accept(kGemmaQuote)) return gemma_text();
    if (next == '{') return mapping(depth);
    if (next == '[') return list(depth, ']');
    if (next == '(' && !gemma_) return list(depth, ')');
    if (next == '\'' || next == '"') return quoted();
    if (next == '-' || next == '+' || next == '.' || is_digit(next)) return number();
    return word();
  }

  bool arguments(std::span<const std::string> names) {
    out += '{';
    for (std::size_t index = 0; !at_end(); ++index) {
      if (index > 0) out += ", ";
      const std::size_t start = position_;
      std::string key = identifier();
      if (key.empty() || peek() != '=' || text_.substr(position_, 2) == "==") {
        if (index >= names.size()) return false;
        position_ = start;
        key = names[index];
      } else {
        ++position_;
      }
      write_text(key);
      out += ": ";
      if (!value()) return false;
      if (at_end()) break;
      if (!accept(",")) return false;
    }
    out += '}';
    return true;
  }

 private:
  void skip() {
    while (position_ < text_.size() && is_space(text_[position_])) ++position_;
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
  void write_text(std::string_view bytes) {
    out += '"';
    append_json_escaped(out, bytes);
    out += '"';
  }
  std::string identifier() {
    skip();
    const std::size_t begin = position_;
    while (position_ < text_.size() &&
           (is_letter(text_[position_]) || is_digit(text_[position_]) || text_[position_] == '-'))
      ++position_;
    return std::string(text_.substr(begin, position_ - begin));
  }

  bool list(int depth, char close) {
    ++position_;
    out += '[';
    for (bool first = true; peek() != close; first = false) {
      if (!first) {
        if (!accept(",")) return false;
        if (peek() == close) break;  // a comma may follow the last item
        out += ", ";
      }
      if (!value(depth + 1)) return false;
    }
    ++position_;
    out += ']';
    return true;
  }

  bool key() {
    const char next = peek();
    if (gemma_ && accept(kGemmaQuote)) return gemma_text();
    if (next == '\'' || next == '"') return quoted();
    if (!gemma_) return false;
    const std::string name = identifier();
    write_text(name);
    return !name.empty();
  }

  bool mapping(int depth) {
    ++position_;
    out += '{';
    for (bool first = true; peek() != '}'; first = false) {
      if (!first) {
        if (!accept(",")) return false;
        if (peek() == '}') break;
        out += ", ";
      }
      if (!key() || peek() != ':') return false;
      ++position_;
      out += ": ";
      if (!value(depth + 1)) return false;
    }
    ++position_;
    out += '}';
    return true;
  }

  bool gemma_text() {
    const std::size_t end = text_.find(kGemmaQuote, position_);
    if (end == std::string_view::npos) return false;
    write_text(text_.substr(position_, end - position_));
    position_ = end + kGemmaQuote.size();
    return true;
  }

  bool number() {
    std::string digits;
    if (accept("-"))
      digits = "-";
    else
      accept("+");
    const std::size_t begin = position_;
    while (position_ < text_.size() && (is_digit(text_[position_]) || text_[position_] == '_')) ++position_;
    for (const char c : text_.substr(begin, position_ - begin))
      if (c != '_') digits += c;
    if (position_ == begin) digits += '0';  // .5
    if (accept(".")) {
      digits += '.';
      const std::size_t fraction = position_;
      while (position_ < text_.size() && is_digit(text_[position_])) digits += text_[position_++];
      if (position_ == fraction) digits += '0';  // 1.
    }
    if (accept("e") || accept("E")) {
      digits += 'e';
      if (accept("-"))
        digits += '-';
      else
        accept("+");
      while (position_ < text_.size() && is_digit(text_[position_])) digits += text_[position_++];
    }
    out += digits;
    return is_json(digits);
  }

  bool word() {
    const std::string name = identifier();
    if (name == "True" || name == "true")
      out += "true";
    else if (name == "False" || name == "false")
      out += "false";
    else if (name == "None" || name == "null")
      out += "null";
    else
      return false;
    return true;
  }

  bool escape(std::string& bytes) {
    const char code = position_ < text_.size() ? text_[position_++] : '\0';
    constexpr std::string_view kPlain = "\\'\"nrtbfav0/";
    constexpr std::string_view kMeaning{"\\'\"\n\r\t\b\f\a\v\0/", 12};
    if (code == '\n') return true;  // a continued line
    const int digits = code == 'x' ? 2 : code == 'u' ? 4 : code == 'U' ? 8 : 0;
    if (digits > 0) {
      if (text_.size() - position_ < static_cast<std::size_t>(digits)) return false;
      char32_t unit = 0;
      for (int i = 0; i < digits; ++i, ++position_) {
        const char c = text_[position_];
        if (is_digit(c))
          unit = unit * 16 + static_cast<char32_t>(c - '0');
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
          unit = unit * 16 + static_cast<char32_t>((c | 0x20) - 'a' + 10);
        else
          return false;
      }
      append_utf8(bytes, unit > 0x10ffff || (unit >= 0xd800 && unit < 0xe000) ? 0xfffd : unit);
      return true;
    }
    if (const std::size_t known = kPlain.find(code); code != '\0' && known != std::string_view::npos)
      bytes += kMeaning[known];
    else
      bytes += {'\\', code};  // Python keeps what it does not know
    return code != '\0';
  }

  bool quoted() {
    const char quote = text_[position_];
    const std::string triple(3, quote);
    const bool is_triple = accept(triple);
    const std::string_view end = is_triple ? std::string_view(triple) : std::string_view(triple).substr(0, 1);
    if (!is_triple) ++position_;
    std::string bytes;
    while (!accept(end)) {
      if (position_ >= text_.size()) return false;
      const char c = text_[position_++];
      if (c == '\\') {
        if (!escape(bytes)) return false;
      } else {
        bytes += c;
      }
    }
    write_text(bytes);
    return true;
  }

  std::string_view text_;
  std::size_t position_ = 0;
  bool gemma_;
};

}  // namespace

void append_json_escaped(std::string& out, std::string_view bytes) {
  for (const char c : bytes) {
    constexpr std::string_view kShort = "\"\\\b\f\n\r\t";
    constexpr std::string_view kLetter = "\"\\bfnrt";
    if (const std::size_t known = kShort.find(c); known != std::string_view::npos)
      out += {'\\', kLetter[known]};
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
}

std::optional<std::string> python_to_json(std::string_view text) {
  Converter converter(text, false);
  if (!converter.value() || !converter.at_end()) return std::nullopt;
  return std::move(converter.out);
}

std::optional<std::string> python_arguments_to_json(std::string_view text,
                                                    std::span<const std::string> names) {
  Converter converter(text, false);
  if (!converter.arguments(names)) return std::nullopt;
  return std::move(converter.out);
}

std::optional<std::string> gemma_to_json(std::string_view text) {
  Converter converter(text, true);
  if (!converter.value() || !converter.at_end()) return std::nullopt;
  return std::move(converter.out);
}

bool is_json(std::string_view text) {
  // Within a list, so that numbers and words have an end.
  JsonScanner scanner;
  if (scanner.push('[') != JsonScanner::Status::more) return false;
  bool any = false;
  for (const char c : text) {
    if (scanner.push(c) != JsonScanner::Status::more) return false;
    if (c == ',' && scanner.depth() == 1 && !scanner.in_text()) return false;
    any = any || !is_space(c);
  }
  return any && scanner.push(']') == JsonScanner::Status::done;
}

PythonScanner::Status PythonScanner::push(char byte) {
  if (quote_ != 0) {
    if (opening_) {  // quotes seen so far: run_
      if (byte == quote_) {
        if (++run_ < 3) return Status::more;
        triple_ = true;
        opening_ = false;
        run_ = 0;
        return Status::more;
      }
      opening_ = false;
      if (run_ == 2) {
        quote_ = 0;  // an empty text
        return push(byte);
      }
      run_ = 0;
    }
    if (escaped_) return escaped_ = false, Status::more;
    if (byte == '\\') return escaped_ = true, run_ = 0, Status::more;
    if (byte != quote_) return run_ = 0, Status::more;
    if (!triple_ || ++run_ == 3) quote_ = 0;
    return Status::more;
  }
  switch (byte) {
    case '\'':
    case '"':
      quote_ = byte;
      run_ = 1;
      opening_ = true;
      triple_ = escaped_ = false;
      return Status::more;
    case '(':
    case '[':
    case '{':
      open_ += byte;
      return open_.size() > kMaxDepth ? Status::failed : Status::more;
    case ')':
      if (open_.empty()) return Status::done;
      [[fallthrough]];
    case ']':
    case '}': {
      const char match = byte == ')' ? '(' : byte == ']' ? '[' : '{';
      if (open_.empty() || open_.back() != match) return Status::failed;
      open_.pop_back();
      return Status::more;
    }
    default:
      return Status::more;
  }
}

GemmaScanner::Status GemmaScanner::push(char byte) {
  matched_ = byte == kGemmaQuote[matched_] ? matched_ + 1 : byte == kGemmaQuote[0] ? 1 : 0;
  if (matched_ == kGemmaQuote.size()) {
    matched_ = 0;
    in_text_ = !in_text_;
    return Status::more;
  }
  if (in_text_) return Status::more;
  if (byte == '{' || byte == '[') return ++depth_ > kMaxDepth ? Status::failed : Status::more;
  if (depth_ == 0) return is_space(byte) ? Status::more : Status::failed;
  if (byte != '}' && byte != ']') return Status::more;
  return --depth_ == 0 ? Status::done : Status::more;
}

}  // namespace quipu::text
