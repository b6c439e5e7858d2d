#include "text/grammar/gbnf.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "text/grammar/code_points.hpp"
#include "text/unicode.hpp"

namespace quipu::text::grammar {

namespace {

constexpr int kMaxGroups = 100;  // nested

class GbnfParser {
 public:
  GbnfParser(Store& store, std::string_view source)
      : store_(store), encoder_(store, Encoding::utf8), source_(source) {}

  Id run(std::string_view root) {
    if (source_.size() > kMaxGbnf)
      fail(ErrorCode::unsupported, "a grammar of {} bytes is too long, at most {} are possible",
           source_.size(), kMaxGbnf);
    for (skip(true); !done(); skip(true)) rule();
    for (const auto& [name, known] : rules_) {
      if (known.defined) continue;
      position_ = known.first_use;
      refuse(fmt::format("the rule \"{}\", which is not defined", printable(name, 80)));
    }
    const auto it = rules_.find(std::string(root));
    if (it == rules_.end())
      fail(ErrorCode::invalid_argument, "the grammar has no rule \"{}\", where every text starts",
           printable(root, 80));
    return store_.call(it->second.number);
  }

 private:
  struct Known {
    std::uint32_t number;
    std::size_t first_use;
    bool defined = false;
  };

  [[noreturn]] void refuse(std::string_view found, ErrorCode code = ErrorCode::invalid_argument) const {
    const std::string_view before = source_.substr(0, std::min(position_, source_.size()));
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    fail(code, "the grammar has {} at {}:{}", found, line, before.size() - begin + 1);
  }

  bool done() const { return position_ >= source_.size(); }
  char peek() const { return done() ? '\0' : source_[position_]; }
  bool accept(std::string_view text) {
    if (source_.compare(position_, text.size(), text) != 0) return false;
    position_ += text.size();
    return true;
  }
  void expect(std::string_view text) {
    if (!accept(text)) refuse(fmt::format("something else where '{}' is expected", text));
  }

  /// White space and comments.
  void skip(bool lines) {
    while (!done()) {
      const char c = peek();
      if (c == '#')
        while (!done() && peek() != '\n') ++position_;
      else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')))
        ++position_;
      else
        return;
    }
  }

  static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }
  std::string name() {
    const std::size_t begin = position_;
    while (!done() && is_name(peek())) ++position_;
    if (position_ == begin) refuse("something else where the name of a rule is expected");
    return std::string(source_.substr(begin, position_ - begin));
  }

  Known& known(const std::string& name, std::size_t place) {
    const auto it = rules_.find(name);
    if (it != rules_.end()) return it->second;
    return rules_.emplace(name, Known{store_.new_rule(name), place, false}).first->second;
  }

  void rule() {
    const std::size_t place = position_;
    Known& rule = known(name(), place);
    if (rule.defined) {
      position_ = place;
      refuse("a rule that is defined already");
    }
    rule.defined = true;
    const std::uint32_t number = rule.number;
    skip(false);
    expect("::=");
    skip(true);
    store_.set_rule(number, alternatives(0));
    if (!done() && peek() != '\n' && peek() != '\r')
      refuse("something else where the end of a rule is expected");
  }

  /// Whether a new line goes on with an alternative.
  bool continues() {
    const std::size_t begin = position_;
    skip(true);
    if (peek() == '|') return true;
    position_ = begin;
    return false;
  }

  Id alternatives(int depth) {
    if (depth > kMaxGroups)
      refuse(fmt::format("groups nested deeper than {}", kMaxGroups), ErrorCode::unsupported);
    std::vector<Id> parts{sequence(depth)};
    while (continues()) {
      ++position_;
      skip(true);
      parts.push_back(sequence(depth));
    }
    return store_.choice(std::move(parts));
  }

  /// Whether a rule's head starts here: in a group, lines may end anywhere.
  bool at_rule() {
    if (!is_name(peek())) return false;
    const std::size_t begin = position_;
    while (is_name(peek())) ++position_;
    skip(false);
    const bool head = accept("::=");
    position_ = begin;
    return head;
  }

  Id sequence(int depth) {
    std::vector<Id> parts;
    for (;; skip(depth > 0)) {
      const char c = peek();
      Id item = kNever;
      if (c == '"') {
        item = literal();
      } else if (c == '[') {
        item = encoder_.one_of(char_class());
      } else if (c == '.') {
        ++position_;
        item = encoder_.any();
      } else if (c == '(') {
        ++position_;
        skip(true);
        item = alternatives(depth + 1);
        skip(true);
        expect(")");
      } else if (c == '<' || c == '!') {
        item = token();
      } else if (is_name(c) && !(depth > 0 && at_rule())) {
        const std::size_t place = position_;
        item = store_.call(known(name(), place).number);
      } else {
        break;
      }
      parts.push_back(repeated(item));
    }
    Id id = kEmpty;
    for (std::size_t i = parts.size(); i-- > 0;) id = store_.concat(parts[i], id);
    return id;
  }

  std::uint32_t number() {
    std::uint64_t value = 0;
    if (peek() < '0' || peek() > '9') refuse("something else where a number is expected");
    for (; peek() >= '0' && peek() <= '9'; ++position_) {
      value = value * 10 + static_cast<std::uint64_t>(peek() - '0');
      if (value >= kUnbounded) refuse("a number beyond 32 bits", ErrorCode::unsupported);
    }
    return static_cast<std::uint32_t>(value);
  }

  Id repeated(Id item) {
    while (true) {
      const std::size_t begin = position_;
      skip(false);
      if (accept("*")) {
        item = store_.repeat(item, 0, kUnbounded);
      } else if (accept("+")) {
        item = store_.repeat(item, 1, kUnbounded);
      } else if (accept("?")) {
        item = store_.repeat(item, 0, 1);
      } else if (accept("{")) {
        skip(false);
        const std::uint32_t low = peek() == ',' ? 0 : number();
        std::uint32_t high = low;
        skip(false);
        if (accept(",")) {
          skip(false);
          high = peek() == '}' ? kUnbounded : number();
          skip(false);
        }
        expect("}");
        if (low > high) refuse("counts out of order");
        item = store_.repeat(item, low, high);
      } else {
        position_ = begin;
        return item;
      }
    }
  }

  char32_t hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i, ++position_) {
      const char c = peek();
      if (c >= '0' && c <= '9')
        value = value * 16 + static_cast<char32_t>(c - '0');
      else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        value = value * 16 + static_cast<char32_t>((c | 0x20) - 'a' + 10);
      else
        refuse(fmt::format("an escape without its {} hexadecimal digits", digits));
    }
    if (value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) refuse("an escape that is no character");
    return value;
  }

  char32_t character() {
    if (done()) refuse("an end inside of quotes or brackets");
    if (accept("\\")) {
      const char c = peek();
      ++position_;
      switch (c) {
        case 'x':
          return hex(2);
        case 'u':
          return hex(4);
        case 'U':
          return hex(8);
        case 't':
          return '\t';
        case 'r':
          return '\r';
        case 'n':
          return '\n';
        case '\\':
        case '"':
        case '[':
        case ']':
        case '^':
        case '-':
          return static_cast<char32_t>(c);
        default:
          --position_;
          refuse("an escape that does not exist");
      }
    }
    const DecodedChar next = decode_utf8(source_, position_);
    if (!next.valid) refuse("invalid UTF-8");
    position_ += next.length;
    return next.value;
  }

  Id literal() {
    ++position_;
    std::string text;
    while (!accept("\"")) append_utf8(text, character());
    return store_.literal(text);
  }

  CodePoints char_class() {
    ++position_;
    const bool negative = accept("^");
    std::vector<CodePoints::Range> ranges;
    while (!accept("]")) {
      const char32_t low = character();
      char32_t high = low;
      if (peek() == '-' && position_ + 1 < source_.size() && source_[position_ + 1] != ']') {
        ++position_;
        high = character();
        if (low > high) refuse("a range out of order");
      }
      ranges.emplace_back(low, high);
    }
    const CodePoints set(std::move(ranges));
    return negative ? set.complement() : set;
  }

  /// <text> or <[id]>: one token. !<text> or !<[id]>: any one token but that.
  Id token() {
    const bool negative = accept("!");
    if (peek() != '<') refuse("a '!' without the '<' of a token");
    std::string name;
    if (source_.compare(position_, 2, "<[") == 0) {
      position_ += 2;
      name = fmt::format("<[{}]>", number());
      expect("]>");
    } else {
      const std::size_t end = source_.find_first_of(">\r\n", position_);
      if (end == std::string_view::npos || source_[end] != '>') refuse("a '<' without the '>' of a token");
      name = source_.substr(position_, end + 1 - position_);
      position_ = end + 1;
    }
    return negative ? store_.not_special(name) : store_.special(name);
  }

  Store& store_;
  Encoder encoder_;
  std::string_view source_;
  std::size_t position_ = 0;
  std::map<std::string, Known> rules_;
};

}  // namespace

Id gbnf(Store& store, std::string_view source, std::string_view root) {
  return GbnfParser(store, source).run(root);
}

}  // namespace quipu::text::grammar
