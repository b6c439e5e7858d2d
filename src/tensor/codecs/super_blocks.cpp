// Decoders of the super-blocks of 256: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS.
#include <cstdint>

#include "tensor/blocks.hpp"
#include "tensor/codecs.hpp"
#include "tensor/codecs/blocks_io.hpp"
#include "tensor/dtype.hpp"

namespace quipu::codecs {

void decode_q2_k(const std::byte* blocks, float* out, std::size_t n) {
  for_each_block<BlockQ2_K, kSuperBlock>(blocks, out, n, [](const BlockQ2_K& block, float* y) {
    const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
    for (std::size_t i = 0; i < kSuperBlock; ++i) {
      const std::uint8_t packed = block.scales[i / 16];
      const float scale = d * static_cast<float>(packed & 15);
      const float minimum = dmin * static_cast<float>(packed >> 4);
      const int q = block.qs[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
      y[i] = scale * static_cast<float>(q) - minimum;
    }
  });
}

void decode_q3_k(const std::byte* blocks, float* out, std::size_t n) {
  for_each_block<BlockQ3_K, kSuperBlock>(blocks, out, n, [](const BlockQ3_K& block, float* y) {
    const float d = f16_to_f32(block.d);
    for (std::size_t i = 0; i < kSuperBlock; ++i) {
      const float scale = d * static_cast<float>(scale_q3_k(block.scales, static_cast<int>(i / 16)));
      const int low = block.qs[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
      const int high = block.hmask[i % 32] >> (i / 32) & 1;
      y[i] = scale * static_cast<float>((low | high << 2) - 4);
    }
  });
}

void decode_q4_k(const std::byte* blocks, float* out, std::size_t n) {
  for_each_block<BlockQ4_K, kSuperBlock>(blocks, out, n, [](const BlockQ4_K& block, float* y) {
    const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
    for (std::size_t sub = 0; sub < 8; ++sub) {
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

void decode_q5_k(const std::byte* blocks, float* out, std::size_t n) {
  for_each_block<BlockQ5_K, kSuperBlock>(blocks, out, n, [](const BlockQ5_K& block, float* y) {
    const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
    for (std::size_t sub = 0; sub < 8; ++sub) {
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

void decode_q6_k(const std::byte* blocks, float* out, std::size_t n) {
  for_each_block<BlockQ6_K, kSuperBlock>(blocks, out, n, [](const BlockQ6_K& block, float* y) {
    const float d = f16_to_f32(block.d);
    for (std::size_t i = 0; i < kSuperBlock; ++i) {
      const std::size_t half = i / 128, quarter = i / 32 % 4, l = i % 32;
      const int low = block.ql[64 * half + 32 * (quarter % 2) + l] >> (quarter / 2 * 4) & 15;
      const int high = block.qh[32 * half + l] >> (2 * quarter) & 3;
      // The product with the scale first: it is exact, so there is one rounding.
      y[i] = d * static_cast<float>(block.scales[i / 16]) * static_cast<float>((low | high << 4) - 32);
    }
  });
}

void decode_iq4_xs(const std::byte* blocks, float* out, std::size_t n) {
  for_each_block<BlockIQ4_XS, kSuperBlock>(blocks, out, n, [](const BlockIQ4_XS& block, float* y) {
    const float d = f16_to_f32(block.d);
    for (std::size_t sub = 0; sub < 8; ++sub) {
      const float scale = d * static_cast<float>(scale_iq4_xs(block, static_cast<int>(sub)));
      for (std::size_t l = 0; l < 32; ++l) {
        const std::size_t q = block.qs[sub * 16 + l % 16] >> (l / 16 * 4) & 15;
        y[sub * 32 + l] = scale * static_cast<float>(kIq4Values[q]);
      }
    }
  });
}

}  // namespace quipu::codecs
