// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: blocks of 32 with one or two half-precision scales.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tensor/blocks.hpp"
#include "tensor/codecs.hpp"
#include "tensor/codecs/fit.hpp"
#include "tensor/codecs/row_io.hpp"
#include "tensor/dtype.hpp"

namespace quipu::codecs {
namespace {

using SmallValues = Values<kSmallBlock>;

// Bit 4 of element `j`, in place.
int fifth_bit(const std::uint8_t (&qh)[4], std::size_t j) { return (qh[j / 8] >> (j % 8) & 1) << 4; }

void pack_fifth_bits(std::uint8_t (&qh)[4], const std::array<int, kSmallBlock>& codes) {
  std::fill(std::begin(qh), std::end(qh), std::uint8_t{0});
  for (std::size_t j = 0; j < kSmallBlock; ++j)
    qh[j / 8] = static_cast<std::uint8_t>(qh[j / 8] | (codes[j] >> 4 & 1) << (j % 8));
}

// Truncates towards zero to 0..largest. Where the scale is too small to have a finite inverse, x may be
// anything; such blocks decode to zero whatever their codes.
int truncated(float x, int largest) {
  if (!(x > 0)) return 0;
  return x < static_cast<float>(largest) ? static_cast<int>(x) : largest;
}

// Symmetric blocks: the value of largest magnitude takes the code 0, that is -half.
struct SymmetricBlock {
  float d;
  std::array<int, kSmallBlock> codes;
};
SymmetricBlock encode_symmetric(const SmallValues& x, int half) {
  SymmetricBlock block;
  block.d = extreme(x) / static_cast<float>(-half);
  const float inverse = inverse_of(block.d);
  const float bias = static_cast<float>(half) + 0.5F;
  for (std::size_t j = 0; j < kSmallBlock; ++j)
    block.codes[j] = truncated(x[j] * inverse + bias, 2 * half - 1);
  return block;
}

// Affine blocks: the codes span the range from the least to the largest value.
struct AffineBlock {
  float d, m;
  std::array<int, kSmallBlock> codes;
};
AffineBlock encode_affine(const SmallValues& x, int largest) {
  float minimum = std::numeric_limits<float>::max(), maximum = std::numeric_limits<float>::lowest();
  for (const float v : x) {
    if (v < minimum) minimum = v;
    if (v > maximum) maximum = v;
  }
  AffineBlock block;
  block.d = (maximum - minimum) / static_cast<float>(largest);
  block.m = minimum;
  const float inverse = inverse_of(block.d);
  for (std::size_t j = 0; j < kSmallBlock; ++j)
    block.codes[j] = truncated((x[j] - minimum) * inverse + 0.5F, largest);
  return block;
}

}  // namespace

void decode_q4_0(const std::byte* blocks, float* out, std::size_t n) {
  decode_row<BlockQ4_0, kSmallBlock>(blocks, out, n, [](const BlockQ4_0& block, float* y) {
    const float d = f16_to_f32(block.d);
    for_each_nibble(block.qs, [&](std::size_t j, int q) { y[j] = static_cast<float>(q - 8) * d; });
  });
}

void encode_q4_0(const float* values, std::byte* blocks, std::size_t n) {
  encode_row<kSmallBlock>(values, blocks, n, [](const SmallValues& x) {
    const SymmetricBlock encoded = encode_symmetric(x, 8);
    BlockQ4_0 block;
    block.d = f32_to_f16(encoded.d);
    pack_nibbles(block.qs, [&](std::size_t j) { return encoded.codes[j]; });
    return block;
  });
}

void decode_q4_1(const std::byte* blocks, float* out, std::size_t n) {
  decode_row<BlockQ4_1, kSmallBlock>(blocks, out, n, [](const BlockQ4_1& block, float* y) {
    const float d = f16_to_f32(block.d), m = f16_to_f32(block.m);
    for_each_nibble(block.qs, [&](std::size_t j, int q) { y[j] = static_cast<float>(q) * d + m; });
  });
}

void encode_q4_1(const float* values, std::byte* blocks, std::size_t n) {
  encode_row<kSmallBlock>(values, blocks, n, [](const SmallValues& x) {
    const AffineBlock encoded = encode_affine(x, 15);
    BlockQ4_1 block;
    block.d = f32_to_f16(encoded.d);
    block.m = f32_to_f16(encoded.m);
    pack_nibbles(block.qs, [&](std::size_t j) { return encoded.codes[j]; });
    return block;
  });
}

void decode_q5_0(const std::byte* blocks, float* out, std::size_t n) {
  decode_row<BlockQ5_0, kSmallBlock>(blocks, out, n, [](const BlockQ5_0& block, float* y) {
    const float d = f16_to_f32(block.d);
    for_each_nibble(block.qs, [&](std::size_t j, int q) {
      y[j] = static_cast<float>((q | fifth_bit(block.qh, j)) - 16) * d;
    });
  });
}

void encode_q5_0(const float* values, std::byte* blocks, std::size_t n) {
  encode_row<kSmallBlock>(values, blocks, n, [](const SmallValues& x) {
    const SymmetricBlock encoded = encode_symmetric(x, 16);
    BlockQ5_0 block;
    block.d = f32_to_f16(encoded.d);
    pack_nibbles(block.qs, [&](std::size_t j) { return encoded.codes[j]; });
    pack_fifth_bits(block.qh, encoded.codes);
    return block;
  });
}

void decode_q5_1(const std::byte* blocks, float* out, std::size_t n) {
  decode_row<BlockQ5_1, kSmallBlock>(blocks, out, n, [](const BlockQ5_1& block, float* y) {
    const float d = f16_to_f32(block.d), m = f16_to_f32(block.m);
    for_each_nibble(block.qs, [&](std::size_t j, int q) {
      y[j] = static_cast<float>(q | fifth_bit(block.qh, j)) * d + m;
    });
  });
}

void encode_q5_1(const float* values, std::byte* blocks, std::size_t n) {
  encode_row<kSmallBlock>(values, blocks, n, [](const SmallValues& x) {
    const AffineBlock encoded = encode_affine(x, 31);
    BlockQ5_1 block;
    block.d = f32_to_f16(encoded.d);
    block.m = f32_to_f16(encoded.m);
    pack_nibbles(block.qs, [&](std::size_t j) { return encoded.codes[j]; });
    pack_fifth_bits(block.qh, encoded.codes);
    return block;
  });
}

void decode_q8_0(const std::byte* blocks, float* out, std::size_t n) {
  decode_row<BlockQ8_0, kSmallBlock>(blocks, out, n, [](const BlockQ8_0& block, float* y) {
    const float d = f16_to_f32(block.d);
    for (std::size_t j = 0; j < kSmallBlock; ++j) y[j] = static_cast<float>(block.qs[j]) * d;
  });
}

void encode_q8_0(const float* values, std::byte* blocks, std::size_t n) {
  encode_row<kSmallBlock>(values, blocks, n, [](const SmallValues& x) {
    const float d = std::fabs(extreme(x)) / 127.0F;
    const float inverse = inverse_of(d);
    BlockQ8_0 block;
    block.d = f32_to_f16(d);
    for (std::size_t j = 0; j < kSmallBlock; ++j) {
      const float rounded = std::round(x[j] * inverse);  // ties away from zero
      block.qs[j] = std::fabs(rounded) <= 127 ? static_cast<std::int8_t>(rounded) : std::int8_t{0};
    }
    return block;
  });
}

}  // namespace quipu::codecs
