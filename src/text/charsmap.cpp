#include "text/charsmap.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "text/unicode.hpp"

namespace quipu::text {

namespace {

constexpr std::string_view kCharsmapKey = "tokenizer.ggml.precompiled_charsmap";
/// Real keys are a few characters long; a damaged trie can have cycles.
constexpr std::size_t kMaxKeyBytes = 256;

std::uint32_t read_u32(const std::vector<std::uint8_t>& bytes, std::size_t at) {
  return static_cast<std::uint32_t>(bytes[at]) | static_cast<std::uint32_t>(bytes[at + 1]) << 8 |
         static_cast<std::uint32_t>(bytes[at + 2]) << 16 | static_cast<std::uint32_t>(bytes[at + 3]) << 24;
}

// A unit of the double array (Yata et al., Darts-clone): bit 31 marks a value; else bits 0-7 hold the label,
// bit 8 says that a value hangs below, bits 10-30 hold the offset, shifted by 8 more when bit 9 is set.
bool has_leaf(std::uint32_t unit) { return ((unit >> 8) & 1) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7fffffffu; }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000ffu; }
std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

}  // namespace

Charsmap::Charsmap(std::vector<std::uint8_t> blob, std::string_view origin) : origin_(origin) {
  constexpr std::size_t head = sizeof(std::uint32_t);
  if (blob.size() < head)
    fail(ErrorCode::bad_file, "{}: {} has {} bytes, too few for its length field", origin_, kCharsmapKey,
         blob.size());
  const std::size_t trie_bytes = read_u32(blob, 0);
  if (trie_bytes % sizeof(std::uint32_t) != 0 || trie_bytes > blob.size() - head)
    fail(ErrorCode::bad_file, "{}: {} has {} bytes, but its trie claims {}", origin_, kCharsmapKey,
         blob.size(), trie_bytes);
  units_.reserve(trie_bytes / sizeof(std::uint32_t));
  for (std::size_t i = 0; i < trie_bytes; i += sizeof(std::uint32_t))
    units_.push_back(read_u32(blob, head + i));
  replacements_.assign(blob.begin() + static_cast<std::ptrdiff_t>(head + trie_bytes), blob.end());
}

std::uint32_t Charsmap::unit(std::size_t index) const {
  if (index >= units_.size())
    fail(ErrorCode::bad_file, "{}: {} points to unit {} of {}", origin_, kCharsmapKey, index, units_.size());
  return units_[index];
}

Charsmap::Match Charsmap::longest(std::string_view text) const {
  Match best;
  std::uint32_t node = offset_of(unit(0));
  for (std::size_t i = 0; i < std::min(text.size(), kMaxKeyBytes); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) break;  // NUL closes keys and is never part of one
    node ^= byte;
    const std::uint32_t current = unit(node);
    if (label_of(current) != byte) break;
    node ^= offset_of(current);
    if (has_leaf(current)) best = {i + 1, value_of(unit(node))};
  }
  return best;
}

std::string_view Charsmap::replacement(std::uint32_t offset) const {
  const std::size_t end =
      offset < replacements_.size() ? replacements_.find('\0', offset) : std::string::npos;
  if (end == std::string::npos)
    fail(ErrorCode::bad_file, "{}: {} points to replacement byte {} of {}", origin_, kCharsmapKey, offset,
         replacements_.size());
  return std::string_view(replacements_).substr(offset, end - offset);
}

std::string Charsmap::normalize(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  std::size_t position = 0;
  while (position < text.size()) {
    const Match match = units_.empty() ? Match{} : longest(text.substr(position));
    if (match.length > 0) {
      out += replacement(match.value);
      position += match.length;
      continue;
    }
    const DecodedChar next = decode_utf8(text, position);
    if (next.valid)
      out += text.substr(position, next.length);
    else
      out += kReplacement;
    // SentencePiece replaces invalid bytes one by one.
    position += next.valid ? next.length : 1;
  }
  return out;
}

}  // namespace quipu::text
