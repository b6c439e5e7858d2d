// Limits of the format, and those that quipu sets where the format sets none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace quipu::gguf {

inline constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF", little-endian
inline constexpr std::uint32_t kDefaultAlignment = 32;
inline constexpr std::uint32_t kLeastAlignment = 8;  // the format: a multiple of 8
inline constexpr std::uint64_t kLongestKey = 65535;
inline constexpr std::uint64_t kLongestTensorName = 64;
inline constexpr std::uint32_t kMostDimensions = 4;

/// Ours: the deepest nesting of arrays (no model nests at all) and the number of array elements in the whole
/// metadata (a vocabulary of 500,000 tokens has 2.5 million with scores, types and merges). The second bounds
/// the memory that a small element, widened, can cost.
inline constexpr int kDeepestArray = 8;
inline constexpr std::uint64_t kMostElements = std::uint64_t{1} << 24;

inline constexpr char kAlignmentKey[] = "general.alignment";

/// `value` rounded up to a multiple of `alignment`, a power of two; value must be at most 2^63.
constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

constexpr bool is_usable_alignment(std::uint64_t alignment) {
  return alignment >= kLeastAlignment && alignment <= UINT32_MAX && (alignment & (alignment - 1)) == 0;
}

/// Keys are well-formed UTF-8 without control characters (the format says ASCII; a key in another script
/// harms nobody).
bool is_plain_text(std::string_view text);

}  // namespace quipu::gguf
