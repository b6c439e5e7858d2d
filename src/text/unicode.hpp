// UTF-8 and the few character classes that tokenizers ask for.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quipu::text {

/// The space mark of SentencePiece vocabularies, U+2581.
inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";
inline constexpr std::string_view kReplacement = "\xef\xbf\xbd";  ///< U+FFFD

struct DecodedChar {
  char32_t value = 0;      ///< U+FFFD when invalid
  std::size_t length = 0;  ///< bytes taken, at least 1; of an invalid sequence the maximal subpart
  bool valid = false;
  bool incomplete = false;  ///< invalid only because the text ends inside the character
};

/// The character at `position` < text.size(). Overlong forms, surrogates and values above U+10FFFF are
/// invalid (Unicode 15, table 3-7).
DecodedChar decode_utf8(std::string_view text, std::size_t position);
void append_utf8(std::string& out, char32_t character);
/// Length of the longest prefix of `text` that is valid UTF-8.
std::size_t valid_prefix(std::string_view text);
/// `text` with every invalid UTF-8 sequence replaced by U+FFFD: JSON has no other way to hold such bytes.
std::string valid_utf8(std::string_view text);

/// The Unicode property White_Space.
bool is_white_space(char32_t character);
/// `text` with every space as U+2581, and back.
std::string escape_spaces(std::string_view text);
std::string unescape_spaces(std::string_view text);

}  // namespace quipu::text
