#include "text/byte_alphabet.hpp"

#include "text/unicode.hpp"

namespace quipu::text {

namespace {

constexpr char32_t kShifted = 0x100;  // the first stand-in character
constexpr std::size_t kStandIns = 68;

bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<unsigned char, kStandIns> shifted{};  // U+0100 + i -> byte

  Alphabet() {
    std::size_t next = 0;
    for (unsigned byte = 0; byte < 256; ++byte) {
      char32_t character = byte;
      if (!stands_for_itself(byte)) {
        shifted[next] = static_cast<unsigned char>(byte);
        character = kShifted + static_cast<char32_t>(next++);
      }
      append_utf8(characters[byte], character);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

const std::array<std::string, 256>& byte_characters() { return alphabet().characters; }

std::string to_byte_alphabet(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) out += alphabet().characters[static_cast<unsigned char>(c)];
  return out;
}

std::string from_byte_alphabet(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::size_t position = 0;
  while (position < text.size()) {
    const DecodedChar next = decode_utf8(text, position);
    if (next.valid && next.value < 0x100 && stands_for_itself(next.value)) {
      out.push_back(static_cast<char>(next.value));
    } else if (next.valid && next.value >= kShifted && next.value < kShifted + kStandIns) {
      out.push_back(static_cast<char>(alphabet().shifted[next.value - kShifted]));
    } else {
      out += text.substr(position, next.length);
    }
    position += next.length;
  }
  return out;
}

}  // namespace quipu::text
