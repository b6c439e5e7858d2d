#include "core/error.hpp"

#include <cstdint>

namespace quipu {
namespace {

struct Decoded {
  char32_t code;
  std::size_t length;  // bytes; 0 when the bytes are not UTF-8
};

// One code point by the Unicode standard's table of well-formed sequences (no overlong forms or surrogates).
Decoded decode_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  std::size_t length = 0;
  char32_t code = 0, least = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2, code = lead & 0x1F, least = 0x80;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3, code = lead & 0x0F, least = 0x800;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4, code = lead & 0x07, least = 0x10000;
  } else {
    return {0, 0};
  }
  if (text.size() < length) return {0, 0};
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {0, 0};
    code = (code << 6) | (byte(i) & 0x3F);
  }
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < least || code > 0x10FFFF || surrogate) return {0, 0};
  return {code, length};
}

// Characters that change how a terminal shows what follows, or that cannot be seen: C1 controls, zero-width
// and bidirectional formatting, line separators, language tags, noncharacters.
bool is_deceptive(char32_t c) {
  return (c >= 0x80 && c <= 0x9F) || c == 0xAD || c == 0x61C || c == 0x180E || (c >= 0x200B && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF ||
         (c >= 0xFFF9 && c <= 0xFFFB) || (c & 0xFFFE) == 0xFFFE || (c >= 0xE0000 && c <= 0xE0FFF);
}

std::string escaped(char32_t c) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    default:
      break;
  }
  if (c < 0x20 || c == 0x7F) return fmt::format("\\x{:02X}", static_cast<unsigned>(c));
  if (is_deceptive(c)) return fmt::format("\\u{{{:X}}}", static_cast<std::uint32_t>(c));
  return {};
}

}  // namespace

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::not_found:
      return "not_found";
    case ErrorCode::io:
      return "io";
    case ErrorCode::bad_file:
      return "bad_file";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::context_overflow:
      return "context_overflow";
    case ErrorCode::network:
      return "network";
    case ErrorCode::checksum:
      return "checksum";
    case ErrorCode::cancelled:
      return "cancelled";
    case ErrorCode::internal:
      return "internal";
  }
  return "unknown";
}

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    const Decoded decoded = decode_utf8(text);
    std::string piece;
    if (decoded.length == 0) {
      piece = fmt::format("\\x{:02X}", static_cast<unsigned>(static_cast<std::uint8_t>(text[0])));
    } else {
      piece = escaped(decoded.code);
      if (piece.empty()) piece = text.substr(0, decoded.length);
    }
    if (out.size() + piece.size() > max_bytes) return out + "…";
    out += piece;
    text.remove_prefix(decoded.length == 0 ? 1 : decoded.length);
  }
  return out;
}

}  // namespace quipu
