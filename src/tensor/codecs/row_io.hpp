// Walks of rows of blocks. Blocks in a file may lie at any address, so each is copied in and out.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/blocks.hpp"

namespace quipu::codecs {

/// Calls `decode(block, out)` for each block of `elements` in a row of `n`.
template <class Block, std::size_t elements, class Decode>
void decode_row(const std::byte* blocks, float* out, std::size_t n, Decode decode) {
  for (std::size_t i = 0; i < n / elements; ++i) {
    Block block;
    std::memcpy(&block, blocks + i * sizeof(Block), sizeof block);
    decode(block, out + i * elements);
  }
}

template <std::size_t elements>
using Values = std::array<float, elements>;

/// Calls `encode(values)` for each stretch of `elements` in a row of `n` and stores the blocks it returns.
/// `encode` sees NaN and infinities as zero: they have no place in a block, and a single one would otherwise
/// spoil the scale of its neighbours.
template <std::size_t elements, class Encode>
void encode_row(const float* values, std::byte* blocks, std::size_t n, Encode encode) {
  for (std::size_t i = 0; i < n / elements; ++i) {
    Values<elements> finite;
    for (std::size_t j = 0; j < elements; ++j) {
      const float x = values[i * elements + j];
      finite[j] = std::isfinite(x) ? x : 0.0F;
    }
    const auto block = encode(finite);
    std::memcpy(blocks + i * sizeof block, &block, sizeof block);
  }
}

/// Calls `set(element, code)` for the 32 elements whose 4-bit codes are packed in `qs`.
template <class Set>
void for_each_nibble(const std::uint8_t (&qs)[kSmallBlock / 2], Set set) {
  for (std::size_t j = 0; j < kSmallBlock / 2; ++j) {
    set(j, qs[j] & 15);
    set(j + kSmallBlock / 2, qs[j] >> 4);
  }
}

/// Packs the codes `code(element)` of 32 elements (0..15; higher bits are left out).
template <class Code>
void pack_nibbles(std::uint8_t (&qs)[kSmallBlock / 2], Code code) {
  for (std::size_t j = 0; j < kSmallBlock / 2; ++j)
    qs[j] = static_cast<std::uint8_t>((code(j) & 15) | (code(j + kSmallBlock / 2) & 15) << 4);
}

}  // namespace quipu::codecs
