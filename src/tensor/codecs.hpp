// The codecs behind the dtype table: one decode and one reference encode function per type. `n` counts
// elements and is a multiple of the block size. Blocks may lie at any address. Encoders accept every float:
// F32, F16 and BF16 keep NaN and infinity, the block formats store them as zero.
#pragma once

#include <cstddef>

namespace quipu::codecs {

#define QUIPU_DECLARE_CODEC(type)                                         \
  void decode_##type(const std::byte* blocks, float* out, std::size_t n); \
  void encode_##type(const float* values, std::byte* blocks, std::size_t n)

QUIPU_DECLARE_CODEC(f32);
QUIPU_DECLARE_CODEC(f16);
QUIPU_DECLARE_CODEC(bf16);
QUIPU_DECLARE_CODEC(q4_0);
QUIPU_DECLARE_CODEC(q4_1);
QUIPU_DECLARE_CODEC(q5_0);
QUIPU_DECLARE_CODEC(q5_1);
QUIPU_DECLARE_CODEC(q8_0);
QUIPU_DECLARE_CODEC(q2_k);
QUIPU_DECLARE_CODEC(q3_k);
QUIPU_DECLARE_CODEC(q4_k);
QUIPU_DECLARE_CODEC(q5_k);
QUIPU_DECLARE_CODEC(q6_k);
QUIPU_DECLARE_CODEC(iq4_nl);
QUIPU_DECLARE_CODEC(iq4_xs);
QUIPU_DECLARE_CODEC(mxfp4);

#undef QUIPU_DECLARE_CODEC

}  // namespace quipu::codecs
