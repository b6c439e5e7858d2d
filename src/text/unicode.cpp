#include "text/unicode.hpp"

namespace quipu::text {

namespace {

bool in(unsigned char byte, unsigned low, unsigned high) { return byte >= low && byte <= high; }

}  // namespace

DecodedChar decode_utf8(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const std::size_t left = text.size() - position;
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true, false};

  std::size_t need = 0;
  unsigned low = 0x80, high = 0xbf;  // what the second byte may be
  char32_t value = 0;
  if (in(lead, 0xc2, 0xdf)) {
    need = 2;
    value = lead & 0x1fu;
  } else if (in(lead, 0xe0, 0xef)) {
    need = 3;
    value = lead & 0x0fu;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (in(lead, 0xf0, 0xf4)) {
    need = 4;
    value = lead & 0x07u;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  } else {
    return {0xfffd, 1, false, false};
  }
  for (std::size_t i = 1; i < need; ++i) {
    if (i == left) return {0xfffd, i, false, true};
    if (!in(byte(i), low, high)) return {0xfffd, i, false, false};
    value = (value << 6) | (byte(i) & 0x3fu);
    low = 0x80;
    high = 0xbf;
  }
  return {value, need, true, false};
}

void append_utf8(std::string& out, char32_t character) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (character < 0x80) {
    put(character);
  } else if (character < 0x800) {
    put(0xc0 | (character >> 6));
    put(0x80 | (character & 0x3f));
  } else if (character < 0x10000) {
    put(0xe0 | (character >> 12));
    put(0x80 | ((character >> 6) & 0x3f));
    put(0x80 | (character & 0x3f));
  } else {
    put(0xf0 | (character >> 18));
    put(0x80 | ((character >> 12) & 0x3f));
    put(0x80 | ((character >> 6) & 0x3f));
    put(0x80 | (character & 0x3f));
  }
}

std::size_t valid_prefix(std::string_view text) {
  std::size_t position = 0;
  while (position < text.size()) {
    if (static_cast<unsigned char>(text[position]) < 0x80) {
      ++position;
      continue;
    }
    const DecodedChar next = decode_utf8(text, position);
    if (!next.valid) break;
    position += next.length;
  }
  return position;
}

std::string valid_utf8(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t valid = valid_prefix(text);
    result += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    result += kReplacement;
    text.remove_prefix(decode_utf8(text, 0).length);
  }
  return result;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

std::string escape_spaces(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  for (const char c : text) {
    if (c == ' ')
      out += kSpaceMark;
    else
      out.push_back(c);
  }
  return out;
}

std::string unescape_spaces(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::size_t position = 0;
  while (position < text.size()) {
    if (text.compare(position, kSpaceMark.size(), kSpaceMark) == 0) {
      out.push_back(' ');
      position += kSpaceMark.size();
    } else {
      out.push_back(text[position++]);
    }
  }
  return out;
}

}  // namespace quipu::text
