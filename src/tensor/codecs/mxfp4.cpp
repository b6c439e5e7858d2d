// MXFP4: blocks of 32 four-bit floats (E2M1) with a shared power of two (E8M0).
// Source: OCP Microscaling Formats (MX) Specification 1.0, section 5.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "tensor/blocks.hpp"
#include "tensor/codecs.hpp"
#include "tensor/codecs/fit.hpp"
#include "tensor/codecs/row_io.hpp"

namespace quipu {

float e8m0_half(std::uint8_t e) {
  // 2^(e - 128) is a float subnormal for e < 2.
  const std::uint32_t bits = e < 2 ? std::uint32_t{0x00200000} << e : (std::uint32_t{e} - 1) << 23;
  return std::bit_cast<float>(bits);
}

namespace codecs {
namespace {

float code_value(int code) { return static_cast<float>(kMxfp4Values[static_cast<std::size_t>(code)]); }

// The nearest code point, the lowest code of equals (so never minus zero).
int nearest_code(float x, float d) {
  int best = 0;
  float least = std::fabs(code_value(0) * d - x);
  for (int code = 1; code < 16; ++code) {
    const float error = std::fabs(code_value(code) * d - x);
    if (error < least) best = code, least = error;
  }
  return best;
}

// The largest E2M1 value is 6 = 1.5 * 2^2: the exponent of the largest magnitude, less two.
std::uint8_t shared_exponent(float magnitude) {
  if (!(magnitude > 0)) return 0;
  const float exponent = std::floor(std::log2(magnitude)) - 2 + 127;
  return static_cast<std::uint8_t>(std::clamp(exponent, 0.0F, 254.0F));
}

}  // namespace

void decode_mxfp4(const std::byte* blocks, float* out, std::size_t n) {
  decode_row<BlockMXFP4, kSmallBlock>(blocks, out, n, [](const BlockMXFP4& block, float* y) {
    const float d = e8m0_half(block.e);
    for_each_nibble(block.qs, [&](std::size_t j, int q) { y[j] = code_value(q) * d; });
  });
}

void encode_mxfp4(const float* values, std::byte* blocks, std::size_t n) {
  encode_row<kSmallBlock>(values, blocks, n, [](const Values<kSmallBlock>& x) {
    BlockMXFP4 block;
    block.e = shared_exponent(std::fabs(extreme(x)));
    const float d = e8m0_half(block.e);
    pack_nibbles(block.qs, [&](std::size_t j) { return nearest_code(x[j], d); });
    return block;
  });
}

}  // namespace codecs
}  // namespace quipu
