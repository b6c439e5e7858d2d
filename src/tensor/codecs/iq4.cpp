// IQ4_NL and IQ4_XS: four-bit codes into a fixed table of unevenly spaced values.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "tensor/blocks.hpp"
#include "tensor/codecs.hpp"
#include "tensor/codecs/fit.hpp"
#include "tensor/codecs/row_io.hpp"
#include "tensor/dtype.hpp"

namespace quipu::codecs {
namespace {

constexpr int kTries = 7;  // scales tried on either side of the one that maps the peak to the table's end
constexpr std::size_t kSubBlocks = kSuperBlock / kSmallBlock;

float table_value(int code) { return static_cast<float>(kIq4Values[static_cast<std::size_t>(code)]); }

// The table is sorted: the code is the number of midpoints at or below x. Twice x keeps both sides exact.
int nearest_code(float x) {
  int code = 0;
  for (std::size_t i = 1; i < kIq4Values.size(); ++i)
    code += x + x >= static_cast<float>(kIq4Values[i - 1] + kIq4Values[i]) ? 1 : 0;
  return code;
}

// The scale of the weighted least squares fit x = scale * table[code], errors weighted by x^2.
float fit_scale(std::span<const float> x) {
  const float peak = extreme(x);
  if (std::fabs(peak) < kZeroBlock) return 0;
  float scale = 0, best = 0;
  const auto consider = [&](float inverse, bool first) {
    float sum_qx = 0, sum_q2 = 0;
    for (const float v : x) {
      const float q = table_value(nearest_code(inverse * v));
      const float weight = v * v;
      sum_qx += weight * q * v;
      sum_q2 += weight * q * q;
    }
    if (sum_q2 > 0 && (first || sum_qx * sum_qx > best * sum_q2)) {
      scale = sum_qx / sum_q2;
      best = scale * sum_qx;
    }
  };
  consider(1 / (-peak / table_value(0)), true);
  for (int i = -kTries; i <= kTries; ++i) consider((static_cast<float>(i) + table_value(0)) / peak, false);
  return scale;
}

}  // namespace

void decode_iq4_nl(const std::byte* blocks, float* out, std::size_t n) {
  decode_row<BlockIQ4_NL, kSmallBlock>(blocks, out, n, [](const BlockIQ4_NL& block, float* y) {
    const float d = f16_to_f32(block.d);
    for_each_nibble(block.qs, [&](std::size_t j, int q) { y[j] = d * table_value(q); });
  });
}

void encode_iq4_nl(const float* values, std::byte* blocks, std::size_t n) {
  encode_row<kSmallBlock>(values, blocks, n, [](const Values<kSmallBlock>& x) {
    const float scale = fit_scale(x);
    const float inverse = inverse_of(scale);
    BlockIQ4_NL block;
    block.d = f32_to_f16(scale);
    pack_nibbles(block.qs, [&](std::size_t j) { return nearest_code(inverse * x[j]); });
    return block;
  });
}

void decode_iq4_xs(const std::byte* blocks, float* out, std::size_t n) {
  decode_row<BlockIQ4_XS, kSuperBlock>(blocks, out, n, [](const BlockIQ4_XS& block, float* y) {
    const float d = f16_to_f32(block.d);
    for (std::size_t sub = 0; sub < kSubBlocks; ++sub) {
      const float scale = d * static_cast<float>(scale_iq4_xs(block, static_cast<int>(sub)));
      for (std::size_t l = 0; l < 32; ++l) {
        const int q = block.qs[sub * 16 + l % 16] >> (l / 16 * 4) & 15;
        y[sub * 32 + l] = scale * table_value(q);
      }
    }
  });
}

void encode_iq4_xs(const float* values, std::byte* blocks, std::size_t n) {
  encode_row<kSuperBlock>(values, blocks, n, [](const Values<kSuperBlock>& x) {
    const auto sub_block = [&](std::size_t sub) {
      return std::span(x).subspan(sub * kSmallBlock, kSmallBlock);
    };
    std::array<float, kSubBlocks> scales;
    for (std::size_t sub = 0; sub < kSubBlocks; ++sub) scales[sub] = fit_scale(sub_block(sub));

    const float d = -extreme(scales) / 32;  // the largest scale takes the code -32
    const float inverse = inverse_of(d);
    BlockIQ4_XS block{};
    block.d = f32_to_f16(d);
    for (std::size_t sub = 0; sub < kSubBlocks; ++sub) {
      const int code = std::clamp(nearest_int(inverse * scales[sub]), -32, 31);
      const float sub_inverse = inverse_of(d * static_cast<float>(code));
      const auto part = sub_block(sub);
      for (std::size_t l = 0; l < 16; ++l) {
        const int low = nearest_code(sub_inverse * part[l]), high = nearest_code(sub_inverse * part[l + 16]);
        block.qs[sub * 16 + l] = static_cast<std::uint8_t>(low | high << 4);
      }
      const int biased = code + 32;
      block.scales_l[sub / 2] =
          static_cast<std::uint8_t>(block.scales_l[sub / 2] | (biased & 15) << (sub % 2 * 4));
      block.scales_h = static_cast<std::uint16_t>(block.scales_h | biased >> 4 << (2 * sub));
    }
    return block;
  });
}

}  // namespace quipu::codecs
