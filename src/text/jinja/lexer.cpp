#include "text/jinja/lexer.hpp"

#include <array>
#include <utility>

#include "text/jinja/jinja.hpp"
#include "text/unicode.hpp"

namespace quipu::text::jinja {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

constexpr std::array<std::pair<std::string_view, Symbol>, 26> kSymbols = {{
    {"//", Symbol::floordiv}, {"**", Symbol::pow},      {"==", Symbol::eq},      {"!=", Symbol::ne},
    {">=", Symbol::ge},       {"<=", Symbol::le},       {"+", Symbol::add},      {"-", Symbol::sub},
    {"*", Symbol::mul},       {"/", Symbol::div},       {"%", Symbol::mod},      {"~", Symbol::tilde},
    {"(", Symbol::lparen},    {")", Symbol::rparen},    {"[", Symbol::lbracket}, {"]", Symbol::rbracket},
    {"{", Symbol::lbrace},    {"}", Symbol::rbrace},    {">", Symbol::gt},       {"<", Symbol::lt},
    {"=", Symbol::assign},    {".", Symbol::dot},       {":", Symbol::colon},    {"|", Symbol::pipe},
    {",", Symbol::comma},     {";", Symbol::semicolon},
}};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (position_ < source_.size()) lex_data();
    push(TokenKind::end, position_, position_);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_at(std::string reason) const {
    throw TemplateError(TemplateError::Kind::syntax, std::move(reason), line_);
  }
  char at(std::size_t position) const { return position < source_.size() ? source_[position] : '\0'; }
  bool starts(std::string_view text, std::size_t position) const {
    return source_.compare(position, text.size(), text) == 0;
  }
  void push(TokenKind kind, std::size_t begin, std::size_t end, Symbol symbol = Symbol::add) {
    tokens_.push_back(
        {kind, symbol, line_, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
  }
  void advance(std::size_t to) {
    for (; position_ < to; ++position_)
      if (source_[position_] == '\n') ++line_;
    line_starting_ = to > 0 && source_[to - 1] == '\n';
  }
  /// Skips the sign after an opening mark and returns it, 0 when there is none.
  char sign_at(std::size_t position) const {
    const char c = at(position);
    return c == '-' || c == '+' ? c : '\0';
  }

  /// End of template data [begin, mark) before a tag with this sign: lstrip_blocks and `-`.
  std::size_t data_end(std::size_t begin, std::size_t mark, char sign, bool strip_line) const {
    const std::string_view data = source_.substr(begin, mark - begin);
    if (sign == '-') return begin + trimmed_size(data);
    if (sign == '+' || !strip_line) return mark;
    const std::size_t newline = data.rfind('\n');
    const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_begin == 0 && !line_starting_) return mark;
    return skip_space(data, line_begin) == data.size() ? begin + line_begin : mark;
  }

  void lex_data() {
    std::size_t mark = position_;
    for (;; ++mark) {
      mark = source_.find('{', mark);
      if (mark == std::string_view::npos) {
        push(TokenKind::data, position_, source_.size());
        advance(source_.size());
        return;
      }
      const char next = at(mark + 1);
      if (next == '{' || next == '%' || next == '#') break;
    }
    const char type = at(mark + 1);
    const char sign = sign_at(mark + 2);
    const std::size_t end = data_end(position_, mark, sign, type != '{');
    if (end > position_) push(TokenKind::data, position_, end);
    advance(mark);
    const std::size_t inside = mark + 2 + (sign != '\0' ? 1 : 0);
    if (type == '#') {
      lex_comment(inside);
    } else if (type == '{') {
      push(TokenKind::variable_begin, mark, inside);
      advance(inside);
      lex_code("}}", TokenKind::variable_end);
    } else if (const std::size_t raw = raw_tag_end(mark, "raw"); raw != 0) {
      advance(raw);
      lex_raw();
    } else {
      push(TokenKind::block_begin, mark, inside);
      advance(inside);
      lex_code("%}", TokenKind::block_end);
    }
  }

  /// After a closing mark of a block or comment: trim_blocks and `-`.
  std::size_t after_close(std::size_t end, char sign) const {
    if (sign == '-') return skip_space(source_, end);
    if (sign == '\0' && at(end) == '\n') return end + 1;
    return end;
  }

  void lex_comment(std::size_t inside) {
    // The earliest end; the sign before it belongs to it.
    const std::size_t close = source_.find("#}", inside);
    if (close == std::string_view::npos) fail_at("a comment is not closed");
    const char before = close > inside ? source_[close - 1] : '\0';
    advance(after_close(close + 2, before == '-' || before == '+' ? before : '\0'));
  }

  /// End of the tag `{% word %}` that begins at `mark`, with the white space its closing sign takes; 0: no
  /// such tag.
  std::size_t raw_tag_end(std::size_t mark, std::string_view word) const {
    std::size_t p = mark + 2;
    if (sign_at(p) != '\0') ++p;
    p = skip_space(source_, p);
    if (!starts(word, p)) return 0;
    p = skip_space(source_, p + word.size());
    if (starts("-%}", p)) return skip_space(source_, p + 3);
    return starts("%}", p) ? p + 2 : 0;
  }

  void lex_raw() {
    for (std::size_t mark = position_;; ++mark) {
      mark = source_.find("{%", mark);
      if (mark == std::string_view::npos) fail_at("a raw block is not closed");
      const char sign = sign_at(mark + 2);
      std::size_t p = skip_space(source_, mark + 2 + (sign != '\0' ? 1 : 0));
      if (!starts("endraw", p)) continue;
      p = skip_space(source_, p + 6);
      const char close = sign_at(p);
      if (!starts("%}", p + (close != '\0' ? 1 : 0))) continue;
      const std::size_t end = data_end(position_, mark, sign, true);
      if (end > position_) push(TokenKind::data, position_, end);
      advance(after_close(p + (close != '\0' ? 3 : 2), close));
      return;
    }
  }

  void lex_code(std::string_view close, TokenKind close_kind) {
    std::vector<char> open;
    for (;;) {
      advance(skip_space(source_, position_));
      if (position_ >= source_.size()) fail_at("the template ends inside a tag");
      const std::size_t begin = position_;
      const char c = source_[begin];
      if (open.empty()) {
        const bool block = close_kind == TokenKind::block_end;
        char sign = c == '-' || (c == '+' && block) ? c : '\0';
        if (sign != '\0' && !starts(close, begin + 1)) sign = '\0';
        const std::size_t mark = begin + (sign != '\0' ? 1 : 0);
        if (starts(close, mark)) {
          push(close_kind, begin, mark + 2);
          std::size_t end = mark + 2;
          if (block || sign == '-') end = after_close(end, sign);
          advance(end);
          return;
        }
      }
      if (c == '\'' || c == '"') {
        lex_string(c);
      } else if (is_digit(c)) {
        lex_number();
      } else if (is_name_start(c)) {
        std::size_t end = begin;
        while (end < source_.size() && is_name_part(source_[end])) ++end;
        push(TokenKind::name, begin, end);
        advance(end);
      } else {
        lex_symbol(open);
      }
    }
  }

  void lex_string(char quote) {
    std::size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_at("a string is not closed");
    push(TokenKind::string, position_, end + 1);
    advance(end + 1);
  }

  /// End of digits with single underscores between them.
  std::size_t digits(std::size_t position) const {
    std::size_t p = position;
    while (is_digit(at(p)) || (at(p) == '_' && p > position && is_digit(at(p + 1)))) ++p;
    return p;
  }

  void lex_number() {
    const std::size_t begin = position_;
    const char base = static_cast<char>(at(begin + 1) | 0x20);
    if (at(begin) == '0' && (base == 'x' || base == 'o' || base == 'b')) {
      std::size_t end = begin + 2;
      while (is_hex(at(end)) || (at(end) == '_' && is_hex(at(end + 1)))) ++end;
      if (end > begin + 2) {
        push(TokenKind::integer, begin, end);
        advance(end);
        return;
      }
    }
    std::size_t end = digits(begin);
    bool real = false;
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';  // x.0.5 is two items
    if (!after_dot) {
      if (at(end) == '.' && is_digit(at(end + 1))) {
        end = digits(end + 1);
        real = true;
      }
      if (at(end) == 'e' || at(end) == 'E') {
        const std::size_t sign = at(end + 1) == '+' || at(end + 1) == '-' ? 1 : 0;
        if (is_digit(at(end + 1 + sign))) {
          end = digits(end + 1 + sign);
          real = true;
        }
      }
    }
    if (!real && source_[begin] == '0') {
      // Zeros only: Jinja reads 01 as two numbers.
      std::size_t zeros = begin + 1;
      while (at(zeros) == '0' || (at(zeros) == '_' && at(zeros + 1) == '0')) ++zeros;
      end = zeros;
    }
    push(real ? TokenKind::real : TokenKind::integer, begin, end);
    advance(end);
  }

  void lex_symbol(std::vector<char>& open) {
    for (const auto& entry : kSymbols) {
      if (!starts(entry.first, position_)) continue;
      balance(entry.second, open);
      push(TokenKind::symbol, position_, position_ + entry.first.size(), entry.second);
      advance(position_ + entry.first.size());
      return;
    }
    fail_at("unexpected character '" + printable(source_.substr(position_, 1)) + "'");
  }

  void balance(Symbol symbol, std::vector<char>& open) const {
    char expected = '\0';
    switch (symbol) {
      case Symbol::lparen:
        open.push_back(')');
        return;
      case Symbol::lbracket:
        open.push_back(']');
        return;
      case Symbol::lbrace:
        open.push_back('}');
        return;
      case Symbol::rparen:
        expected = ')';
        break;
      case Symbol::rbracket:
        expected = ']';
        break;
      case Symbol::rbrace:
        expected = '}';
        break;
      default:
        return;
    }
    if (open.empty() || open.back() != expected) fail_at(std::string("unexpected '") + expected + "'");
    open.pop_back();
  }

  std::string_view source_;
  std::size_t position_ = 0;
  std::uint32_t line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

/// Appends the character of `count` hexadecimal digits at `position`.
void append_hex(std::string& out, std::string_view body, std::size_t position, std::size_t count,
                std::uint32_t line) {
  char32_t value = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const char c = position + i < body.size() ? body[position + i] : '\0';
    if (!is_hex(c))
      throw TemplateError(TemplateError::Kind::syntax, "a string has a truncated \\x, \\u or \\U escape",
                          line);
    value = value * 16 + static_cast<char32_t>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  if (value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
    throw TemplateError(TemplateError::Kind::syntax, "a string escape is no Unicode character", line);
  append_utf8(out, value);
}

}  // namespace

bool is_python_space(char32_t character) {
  return is_white_space(character) || (character >= 0x1c && character <= 0x1f);
}

std::size_t skip_space(std::string_view text, std::size_t position) {
  while (position < text.size()) {
    const DecodedChar next = decode_utf8(text, position);
    if (!next.valid || !is_python_space(next.value)) break;
    position += next.length;
  }
  return position;
}

std::size_t trimmed_size(std::string_view text) {
  std::size_t size = text.size();
  while (size > 0) {
    std::size_t begin = size - 1;
    while (begin > 0 && size - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
    const DecodedChar last = decode_utf8(text, begin);
    if (!last.valid || begin + last.length != size || !is_python_space(last.value)) break;
    size = begin;
  }
  return size;
}

std::string normalize_source(std::string_view source) {
  if (source.size() > kMaxTemplateBytes)
    throw TemplateError(
        TemplateError::Kind::syntax,
        fmt::format("the template has {} bytes, at most {} are accepted", source.size(), kMaxTemplateBytes),
        1);
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

std::string unescape_string(std::string_view quoted, std::uint32_t line) {
  const std::string_view body = quoted.substr(1, quoted.size() - 2);
  std::string out;
  out.reserve(body.size());
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\') {
      out.push_back(body[i]);
      continue;
    }
    const char c = ++i < body.size() ? body[i] : '\\';
    constexpr std::string_view kPlain = "\\'\"abfnrtv";
    constexpr std::string_view kMeaning = "\\'\"\a\b\f\n\r\t\v";
    if (const std::size_t known = kPlain.find(c); known != std::string_view::npos) {
      out.push_back(kMeaning[known]);
    } else if (c == '\n') {
      // An escaped line end vanishes.
    } else if (c >= '0' && c <= '7') {
      char32_t value = 0;
      std::size_t count = 0;
      for (; count < 3 && i + count < body.size() && body[i + count] >= '0' && body[i + count] <= '7';
           ++count)
        value = value * 8 + static_cast<char32_t>(body[i + count] - '0');
      append_utf8(out, value);
      i += count - 1;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      append_hex(out, body, i + 1, count, line);
      i += count;
    } else {
      out.push_back('\\');
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace quipu::text::jinja
