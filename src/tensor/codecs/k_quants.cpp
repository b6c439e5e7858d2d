// Q2_K … Q6_K: super-blocks of 256 whose sub-blocks have small integer scales, and minima where the codes are
// not signed.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "tensor/blocks.hpp"
#include "tensor/codecs.hpp"
#include "tensor/codecs/fit.hpp"
#include "tensor/codecs/row_io.hpp"
#include "tensor/dtype.hpp"

namespace quipu::codecs {
namespace {

using SuperValues = Values<kSuperBlock>;
using Codes = std::array<std::uint8_t, kSuperBlock>;

constexpr std::size_t kSixteens = kSuperBlock / 16;
constexpr std::size_t kThirtyTwos = kSuperBlock / 32;

// Where the 2-bit codes of Q2_K and Q3_K lie: byte and shift of element i.
constexpr std::size_t crumb_byte(std::size_t i) { return i / 128 * 32 + i % 32; }
constexpr std::size_t crumb_shift(std::size_t i) { return i / 32 % 4 * 2; }

void pack_crumbs(std::uint8_t (&qs)[64], const Codes& codes) {
  std::memset(qs, 0, sizeof qs);
  for (std::size_t i = 0; i < kSuperBlock; ++i)
    qs[crumb_byte(i)] = static_cast<std::uint8_t>(qs[crumb_byte(i)] | (codes[i] & 3) << crumb_shift(i));
}

// Codes anew for scales and minima as the file will hold them. A sub-block whose scale became zero keeps the
// codes of the fit (they decode to the minimum, whatever they are).
void recode(std::span<const float> x, float scale, float minimum, int least, int largest,
            std::span<std::uint8_t> codes) {
  if (scale == 0) return;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const int code = std::clamp(nearest_int((x[i] + minimum) / scale), least, largest);
    codes[i] = static_cast<std::uint8_t>(code - least);
  }
}

// Scales, minima and codes of Q4_K and Q5_K.
struct SixBitScales {
  Half d, dmin;
  std::uint8_t scales[12];
  Codes codes;
};
SixBitScales encode_six_bit_scales(const SuperValues& x, const AffineSearch& search) {
  SixBitScales out{};
  std::array<AffineFit, kThirtyTwos> fits;
  float max_scale = 0, max_minimum = 0;
  for (std::size_t sub = 0; sub < kThirtyTwos; ++sub) {
    const auto part = std::span(x).subspan(sub * 32, 32);
    float sum = 0;
    for (const float v : part) sum += v * v;
    const float mean = std::sqrt(sum / 32);
    std::array<float, 32> weights;
    for (std::size_t l = 0; l < 32; ++l) weights[l] = mean + std::fabs(part[l]);
    fits[sub] = fit_affine(part, weights, search, std::span(out.codes).subspan(sub * 32, 32));
    if (fits[sub].scale > max_scale) max_scale = fits[sub].scale;
    if (fits[sub].minimum > max_minimum) max_minimum = fits[sub].minimum;
  }

  const float inverse_scale = max_scale > 0 ? 63.0F / max_scale : 0.0F;
  const float inverse_minimum = max_minimum > 0 ? 63.0F / max_minimum : 0.0F;
  const auto six_bits = [](float x6) {
    return std::min(63, static_cast<int>(static_cast<std::uint8_t>(nearest_int(x6))));
  };
  for (std::size_t sub = 0; sub < kThirtyTwos; ++sub) {
    const int scale = six_bits(inverse_scale * fits[sub].scale);
    const int minimum = six_bits(inverse_minimum * fits[sub].minimum);
    if (sub < 4) {
      out.scales[sub] = static_cast<std::uint8_t>(scale);
      out.scales[sub + 4] = static_cast<std::uint8_t>(minimum);
    } else {
      out.scales[sub + 4] = static_cast<std::uint8_t>((scale & 15) | (minimum & 15) << 4);
      out.scales[sub - 4] = static_cast<std::uint8_t>(out.scales[sub - 4] | scale >> 4 << 6);
      out.scales[sub] = static_cast<std::uint8_t>(out.scales[sub] | minimum >> 4 << 6);
    }
  }
  out.d = f32_to_f16(max_scale / 63.0F);
  out.dmin = f32_to_f16(max_minimum / 63.0F);

  const float d = f16_to_f32(out.d), dmin = f16_to_f32(out.dmin);
  for (std::size_t sub = 0; sub < kThirtyTwos; ++sub) {
    const ScaleMin packed = scale_min_k4(out.scales, static_cast<int>(sub));
    recode(std::span(x).subspan(sub * 32, 32), d * static_cast<float>(packed.scale),
           dmin * static_cast<float>(packed.min), 0, search.largest,
           std::span(out.codes).subspan(sub * 32, 32));
  }
  return out;
}

void pack_pairs(std::uint8_t (&qs)[128], const Codes& codes) {
  for (std::size_t pair = 0; pair < kSuperBlock / 64; ++pair)
    for (std::size_t l = 0; l < 32; ++l)
      qs[pair * 32 + l] =
          static_cast<std::uint8_t>((codes[pair * 64 + l] & 15) | (codes[pair * 64 + 32 + l] & 15) << 4);
}

}  // namespace

void decode_q2_k(const std::byte* blocks, float* out, std::size_t n) {
  decode_row<BlockQ2_K, kSuperBlock>(blocks, out, n, [](const BlockQ2_K& block, float* y) {
    const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
    for (std::size_t i = 0; i < kSuperBlock; ++i) {
      const std::uint8_t packed = block.scales[i / 16];
      const float scale = d * static_cast<float>(packed & 15);
      const float minimum = dmin * static_cast<float>(packed >> 4);
      const int q = block.qs[crumb_byte(i)] >> crumb_shift(i) & 3;
      y[i] = scale * static_cast<float>(q) - minimum;
    }
  });
}

void encode_q2_k(const float* values, std::byte* blocks, std::size_t n) {
  encode_row<kSuperBlock>(values, blocks, n, [](const SuperValues& x) {
    constexpr AffineSearch kSearch{3, -0.5F, 0.1F, 15, Loss::absolute};
    Codes codes;
    std::array<AffineFit, kSixteens> fits;
    float max_scale = 0, max_minimum = 0;
    for (std::size_t sub = 0; sub < kSixteens; ++sub) {
      const auto part = std::span(x).subspan(sub * 16, 16);
      std::array<float, 16> weights;
      for (std::size_t l = 0; l < 16; ++l) weights[l] = std::fabs(part[l]);
      fits[sub] = fit_affine(part, weights, kSearch, std::span(codes).subspan(sub * 16, 16));
      if (fits[sub].scale > max_scale) max_scale = fits[sub].scale;
      if (fits[sub].minimum > max_minimum) max_minimum = fits[sub].minimum;
    }

    BlockQ2_K block{};
    const float inverse_scale = max_scale > 0 ? 15.0F / max_scale : 0.0F;
    const float inverse_minimum = max_minimum > 0 ? 15.0F / max_minimum : 0.0F;
    for (std::size_t sub = 0; sub < kSixteens; ++sub) {
      const int scale = nearest_int(inverse_scale * fits[sub].scale) & 15;
      const int minimum = nearest_int(inverse_minimum * fits[sub].minimum) & 15;
      block.scales[sub] = static_cast<std::uint8_t>(scale | minimum << 4);
    }
    block.d = f32_to_f16(max_scale / 15.0F);
    block.dmin = f32_to_f16(max_minimum / 15.0F);
    const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
    for (std::size_t sub = 0; sub < kSixteens; ++sub)
      recode(std::span(x).subspan(sub * 16, 16), d * static_cast<float>(block.scales[sub] & 15),
             dmin * static_cast<float>(block.scales[sub] >> 4), 0, 3, std::span(codes).subspan(sub * 16, 16));
    pack_crumbs(block.qs, codes);
    return block;
  });
}

void decode_q3_k(const std::byte* blocks, float* out, std::size_t n) {
  decode_row<BlockQ3_K, kSuperBlock>(blocks, out, n, [](const BlockQ3_K& block, float* y) {
    const float d = f16_to_f32(block.d);
    for (std::size_t i = 0; i < kSuperBlock; ++i) {
      const float scale = d * static_cast<float>(scale_q3_k(block.scales, static_cast<int>(i / 16)));
      const int low = block.qs[crumb_byte(i)] >> crumb_shift(i) & 3;
      const int high = block.hmask[i % 32] >> (i / 32) & 1;
      y[i] = scale * static_cast<float>((low | high << 2) - 4);
    }
  });
}

void encode_q3_k(const float* values, std::byte* blocks, std::size_t n) {
  encode_row<kSuperBlock>(values, blocks, n, [](const SuperValues& x) {
    Codes codes;
    std::array<float, kSixteens> scales;
    for (std::size_t sub = 0; sub < kSixteens; ++sub)
      scales[sub] = fit_symmetric_stepwise(std::span(x).subspan(sub * 16, 16), 4,
                                           std::span(codes).subspan(sub * 16, 16));

    BlockQ3_K block{};
    const float max_scale = extreme(scales);
    if (max_scale != 0) {
      const float inverse = -32.0F / max_scale;
      for (std::size_t sub = 0; sub < kSixteens; ++sub) {
        const auto code = static_cast<std::int8_t>(nearest_int(inverse * scales[sub]));
        const int biased = std::clamp(static_cast<int>(code), -32, 31) + 32;
        std::uint8_t& low = block.scales[sub % 8];
        std::uint8_t& high = block.scales[8 + sub % 4];
        low = static_cast<std::uint8_t>(low | (biased & 15) << (sub / 8 * 4));
        high = static_cast<std::uint8_t>(high | biased >> 4 << (sub / 4 * 2));
      }
      block.d = f32_to_f16(1 / inverse);
    }
    const float d = f16_to_f32(block.d);
    for (std::size_t sub = 0; sub < kSixteens; ++sub)
      recode(std::span(x).subspan(sub * 16, 16),
             d * static_cast<float>(scale_q3_k(block.scales, static_cast<int>(sub))), 0, -4, 3,
             std::span(codes).subspan(sub * 16, 16));
    pack_crumbs(block.qs, codes);
    for (std::size_t i = 0; i < kSuperBlock; ++i)
      block.hmask[i % 32] = static_cast<std::uint8_t>(block.hmask[i % 32] | codes[i] >> 2 << (i / 32));
    return block;
  });
}

void decode_q4_k(const std::byte* blocks, float* out, std::size_t n) {
  decode_row<BlockQ4_K, kSuperBlock>(blocks, out, n, [](const BlockQ4_K& block, float* y) {
    const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
    for (std::size_t sub = 0; sub < kThirtyTwos; ++sub) {
      const ScaleMin packed = scale_min_k4(block.scales, static_cast<int>(sub));
      const float scale = d * static_cast<float>(packed.scale);
      const float minimum = dmin * static_cast<float>(packed.min);
      for (std::size_t l = 0; l < 32; ++l) {
        const int q = block.qs[sub / 2 * 32 + l] >> (sub % 2 * 4) & 15;
        y[sub * 32 + l] = scale * static_cast<float>(q) - minimum;
      }
    }
  });
}

void encode_q4_k(const float* values, std::byte* blocks, std::size_t n) {
  encode_row<kSuperBlock>(values, blocks, n, [](const SuperValues& x) {
    const SixBitScales encoded = encode_six_bit_scales(x, {15, -1.0F, 0.1F, 20, Loss::squared});
    BlockQ4_K block;
    block.d = encoded.d;
    block.dmin = encoded.dmin;
    std::memcpy(block.scales, encoded.scales, sizeof block.scales);
    pack_pairs(block.qs, encoded.codes);
    return block;
  });
}

void decode_q5_k(const std::byte* blocks, float* out, std::size_t n) {
  decode_row<BlockQ5_K, kSuperBlock>(blocks, out, n, [](const BlockQ5_K& block, float* y) {
    const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
    for (std::size_t sub = 0; sub < kThirtyTwos; ++sub) {
      const ScaleMin packed = scale_min_k4(block.scales, static_cast<int>(sub));
      const float scale = d * static_cast<float>(packed.scale);
      const float minimum = dmin * static_cast<float>(packed.min);
      for (std::size_t l = 0; l < 32; ++l) {
        const int low = block.qs[sub / 2 * 32 + l] >> (sub % 2 * 4) & 15;
        const int high = block.qh[l] >> sub & 1;
        y[sub * 32 + l] = scale * static_cast<float>(low | high << 4) - minimum;
      }
    }
  });
}

void encode_q5_k(const float* values, std::byte* blocks, std::size_t n) {
  encode_row<kSuperBlock>(values, blocks, n, [](const SuperValues& x) {
    const SixBitScales encoded = encode_six_bit_scales(x, {31, -0.5F, 0.1F, 15, Loss::squared});
    BlockQ5_K block{};
    block.d = encoded.d;
    block.dmin = encoded.dmin;
    std::memcpy(block.scales, encoded.scales, sizeof block.scales);
    pack_pairs(block.qs, encoded.codes);
    for (std::size_t i = 0; i < kSuperBlock; ++i)
      block.qh[i % 32] = static_cast<std::uint8_t>(block.qh[i % 32] | encoded.codes[i] >> 4 << (i / 32));
    return block;
  });
}

void decode_q6_k(const std::byte* blocks, float* out, std::size_t n) {
  decode_row<BlockQ6_K, kSuperBlock>(blocks, out, n, [](const BlockQ6_K& block, float* y) {
    const float d = f16_to_f32(block.d);
    for (std::size_t i = 0; i < kSuperBlock; ++i) {
      const std::size_t half = i / 128, quarter = i / 32 % 4, sub = i / 16, l = i % 32;
      const int low = block.ql[64 * half + 32 * (quarter % 2) + l] >> (quarter / 2 * 4) & 15;
      const int high = block.qh[32 * half + l] >> (2 * quarter) & 3;
      // The product with the scale first: it is exact, so there is one rounding.
      y[i] = d * static_cast<float>(block.scales[sub]) * static_cast<float>((low | high << 4) - 32);
    }
  });
}

void encode_q6_k(const float* values, std::byte* blocks, std::size_t n) {
  encode_row<kSuperBlock>(values, blocks, n, [](const SuperValues& x) {
    Codes codes;
    std::array<float, kSixteens> scales;
    for (std::size_t sub = 0; sub < kSixteens; ++sub)
      scales[sub] =
          fit_symmetric(std::span(x).subspan(sub * 16, 16), 32, std::span(codes).subspan(sub * 16, 16));

    BlockQ6_K block{};
    const float max_scale = extreme(scales);
    if (std::fabs(max_scale) < kZeroBlock) return block;
    const float inverse = -128.0F / max_scale;  // the largest scale takes the code -128
    block.d = f32_to_f16(1 / inverse);
    const float d = f16_to_f32(block.d);
    for (std::size_t sub = 0; sub < kSixteens; ++sub) {
      block.scales[sub] = static_cast<std::int8_t>(std::min(127, nearest_int(inverse * scales[sub])));
      recode(std::span(x).subspan(sub * 16, 16), d * static_cast<float>(block.scales[sub]), 0, -32, 31,
             std::span(codes).subspan(sub * 16, 16));
    }
    for (std::size_t i = 0; i < kSuperBlock; ++i) {
      const std::size_t half = i / 128, quarter = i / 32 % 4, l = i % 32;
      std::uint8_t& low = block.ql[64 * half + 32 * (quarter % 2) + l];
      std::uint8_t& high = block.qh[32 * half + l];
      low = static_cast<std::uint8_t>(low | (codes[i] & 15) << (quarter / 2 * 4));
      high = static_cast<std::uint8_t>(high | codes[i] >> 4 << (2 * quarter));
    }
    return block;
  });
}

}  // namespace quipu::codecs
