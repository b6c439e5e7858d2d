// Decoders of the blocks of 32: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4.
#include <bit>
#include <cstdint>

#include "tensor/blocks.hpp"
#include "tensor/codecs.hpp"
#include "tensor/codecs/blocks_io.hpp"
#include "tensor/dtype.hpp"

namespace quipu {

float e8m0_half(std::uint8_t e) {
  // 2^(e - 128) is a float subnormal for e < 2.
  const std::uint32_t bits = e < 2 ? std::uint32_t{0x00200000} << e : (std::uint32_t{e} - 1) << 23;
  return std::bit_cast<float>(bits);
}

namespace codecs {
namespace {

constexpr std::size_t kHalfBlock = kSmallBlock / 2;

int low_nibble(std::uint8_t byte) { return byte & 15; }
int high_nibble(std::uint8_t byte) { return byte >> 4; }

// Bit 4 of element `j`, in place.
int fifth_bit(const std::uint8_t (&qh)[4], std::size_t j) { return (qh[j / 8] >> (j % 8) & 1) << 4; }

// Calls set(element, 4-bit code) for the 32 elements whose nibbles are in `qs`.
template <class Set>
void for_each_nibble(const std::uint8_t (&qs)[kHalfBlock], Set set) {
  for (std::size_t j = 0; j < kHalfBlock; ++j) {
    set(j, low_nibble(qs[j]));
    set(j + kHalfBlock, high_nibble(qs[j]));
  }
}

}  // namespace

void decode_q4_0(const std::byte* blocks, float* out, std::size_t n) {
  for_each_block<BlockQ4_0, kSmallBlock>(blocks, out, n, [](const BlockQ4_0& block, float* y) {
    const float d = f16_to_f32(block.d);
    for_each_nibble(block.qs, [&](std::size_t j, int q) { y[j] = static_cast<float>(q - 8) * d; });
  });
}

void decode_q4_1(const std::byte* blocks, float* out, std::size_t n) {
  for_each_block<BlockQ4_1, kSmallBlock>(blocks, out, n, [](const BlockQ4_1& block, float* y) {
    const float d = f16_to_f32(block.d), m = f16_to_f32(block.m);
    for_each_nibble(block.qs, [&](std::size_t j, int q) { y[j] = static_cast<float>(q) * d + m; });
  });
}

void decode_q5_0(const std::byte* blocks, float* out, std::size_t n) {
  for_each_block<BlockQ5_0, kSmallBlock>(blocks, out, n, [](const BlockQ5_0& block, float* y) {
    const float d = f16_to_f32(block.d);
    for_each_nibble(block.qs, [&](std::size_t j, int q) {
      y[j] = static_cast<float>((q | fifth_bit(block.qh, j)) - 16) * d;
    });
  });
}

void decode_q5_1(const std::byte* blocks, float* out, std::size_t n) {
  for_each_block<BlockQ5_1, kSmallBlock>(blocks, out, n, [](const BlockQ5_1& block, float* y) {
    const float d = f16_to_f32(block.d), m = f16_to_f32(block.m);
    for_each_nibble(block.qs, [&](std::size_t j, int q) {
      y[j] = static_cast<float>(q | fifth_bit(block.qh, j)) * d + m;
    });
  });
}

void decode_q8_0(const std::byte* blocks, float* out, std::size_t n) {
  for_each_block<BlockQ8_0, kSmallBlock>(blocks, out, n, [](const BlockQ8_0& block, float* y) {
    const float d = f16_to_f32(block.d);
    for (std::size_t j = 0; j < kSmallBlock; ++j) y[j] = static_cast<float>(block.qs[j]) * d;
  });
}

void decode_iq4_nl(const std::byte* blocks, float* out, std::size_t n) {
  for_each_block<BlockIQ4_NL, kSmallBlock>(blocks, out, n, [](const BlockIQ4_NL& block, float* y) {
    const float d = f16_to_f32(block.d);
    for_each_nibble(block.qs, [&](std::size_t j, int q) {
      y[j] = d * static_cast<float>(kIq4Values[static_cast<std::size_t>(q)]);
    });
  });
}

void decode_mxfp4(const std::byte* blocks, float* out, std::size_t n) {
  for_each_block<BlockMXFP4, kSmallBlock>(blocks, out, n, [](const BlockMXFP4& block, float* y) {
    const float d = e8m0_half(block.e);
    for_each_nibble(block.qs, [&](std::size_t j, int q) {
      y[j] = static_cast<float>(kMxfp4Values[static_cast<std::size_t>(q)]) * d;
    });
  });
}

}  // namespace codecs
}  // namespace quipu
