// The bytes of a state file. Layout: docs/state-files.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "memory/kv_cache.hpp"

namespace quipu::memory {

inline constexpr std::array<char, 8> kStateMagic{'q', 'u', 'i', 'p', 'u', '-', 'k', 'v'};
inline constexpr std::uint32_t kStateVersion = 1;
inline constexpr std::size_t kStateHeaderBytes = 128, kStateAlignment = 64;

/// Where things stand in a state file of so many tokens: every offset follows from the header's counts.
struct StateLayout {
  std::uint64_t heads_offset, heads_bytes;    ///< u32 per cache layer
  std::uint64_t tokens_offset, tokens_bytes;  ///< i32 per token
  std::uint64_t pages_offset, page_stride;    ///< per page: the page's bytes, then their XXH64
  std::uint64_t pages;
  std::uint64_t file_bytes;
};
/// False when the numbers exceed 64 bits.
bool state_layout(const PageShape& shape, std::uint64_t page_bytes, std::uint64_t tokens,
                  StateLayout& layout);

/// The first part of a file: header, heads and tokens, padded up to the pages.
std::vector<std::byte> encode_state_head(const PageShape& shape, const StateLayout& layout,
                                         std::uint64_t fingerprint, std::span<const std::int32_t> tokens);

/// A checked state file: its tokens, and where its pages stand in its bytes.
struct ParsedState {
  std::vector<std::int32_t> tokens;
  StateLayout layout;
  std::span<const std::byte> bytes;  ///< must stay until the pages are taken over

  std::span<const std::byte> page(std::size_t i) const {
    return bytes.subspan(layout.pages_offset + i * layout.page_stride, layout.page_stride - 8);
  }
};
/// Checks every byte against the pool's shape and the checksums. Throws `Error` as `Sequence::restore` says.
ParsedState parse_state(std::span<const std::byte> bytes, std::string_view name, const PageShape& shape,
                        std::uint64_t page_bytes, std::uint64_t fingerprint);

}  // namespace quipu::memory
