// The byte alphabet of GPT-2: every byte has a printable character, so that vocabularies and merges can be
// written as text. Printable Latin-1 bytes stand for themselves, the other 68 are U+0100 upwards in order.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace quipu::text {

/// UTF-8 of the character that stands for each byte.
const std::array<std::string, 256>& byte_characters();
std::string to_byte_alphabet(std::string_view bytes);
/// Characters outside the alphabet stay as they are.
std::string from_byte_alphabet(std::string_view text);

}  // namespace quipu::text
