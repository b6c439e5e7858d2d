// Template source to tokens, white space control included.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quipu::text::jinja {

enum class TokenKind : std::uint8_t {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  symbol,
  end,
};

enum class Symbol : std::uint8_t {
  add,
  sub,
  mul,
  div,
  floordiv,
  mod,
  pow,
  tilde,
  lparen,
  rparen,
  lbracket,
  rbracket,
  lbrace,
  rbrace,
  eq,
  ne,
  gt,
  ge,
  lt,
  le,
  assign,
  dot,
  colon,
  pipe,
  comma,
  semicolon,
};

struct Token {
  TokenKind kind = TokenKind::end;
  Symbol symbol = Symbol::add;
  std::uint32_t line = 1;
  std::uint32_t begin = 0, end = 0;  ///< bytes in the source; of strings with their quotes
};

/// `source` with `\n` line ends and without one newline at its end, as Jinja reads it.
std::string normalize_source(std::string_view source);
/// Tokens of a normalized source, closed by `end`. Throws `TemplateError` (syntax).
std::vector<Token> tokenize(std::string_view source);
/// The value of a string token given with its quotes.
std::string unescape_string(std::string_view quoted, std::uint32_t line);

/// White space as Python's str.isspace has it.
bool is_python_space(char32_t character);
/// First byte at or after `position` that is no white space.
std::size_t skip_space(std::string_view text, std::size_t position);
/// Size of `text` without white space at its end.
std::size_t trimmed_size(std::string_view text);

}  // namespace quipu::text::jinja
