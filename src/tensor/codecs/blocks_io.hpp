// Walks of encoded rows, a block at a time. Blocks in a file may lie at any address, so each is copied out.
#pragma once

#include <cstddef>
#include <cstring>

namespace quipu::codecs {

/// Calls `decode(block, out)` for each `elements` wide block of a row of `n` elements.
template <class Block, std::size_t elements, class Decode>
void for_each_block(const std::byte* blocks, float* out, std::size_t n, Decode decode) {
  for (std::size_t i = 0; i < n / elements; ++i) {
    Block block;
    std::memcpy(&block, blocks + i * sizeof(Block), sizeof block);
    decode(block, out + i * elements);
  }
}

/// Calls `encode(values)` for each `elements` wide stretch of a row and stores the blocks it returns.
template <std::size_t elements, class Encode>
void store_each_block(const float* values, std::byte* blocks, std::size_t n, Encode encode) {
  for (std::size_t i = 0; i < n / elements; ++i) {
    const auto block = encode(values + i * elements);
    std::memcpy(blocks + i * sizeof block, &block, sizeof block);
  }
}

}  // namespace quipu::codecs
