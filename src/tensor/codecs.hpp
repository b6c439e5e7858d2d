// The codecs behind the dtype table: one decode and one reference encode function per type. `n` counts
// elements and is a multiple of the block size. Blocks may lie at any address.
#pragma once

#include <cstddef>

namespace quipu::codecs {

#define QUIPU_DECLARE_DECODER(type) void decode_##type(const std::byte* blocks, float* out, std::size_t n);
#define QUIPU_DECLARE_ENCODER(type) void encode_##type(const float* values, std::byte* blocks, std::size_t n);

QUIPU_DECLARE_DECODER(f32)
QUIPU_DECLARE_DECODER(f16)
QUIPU_DECLARE_DECODER(bf16)
QUIPU_DECLARE_DECODER(q4_0)
QUIPU_DECLARE_DECODER(q4_1)
QUIPU_DECLARE_DECODER(q5_0)
QUIPU_DECLARE_DECODER(q5_1)
QUIPU_DECLARE_DECODER(q8_0)
QUIPU_DECLARE_DECODER(q2_k)
QUIPU_DECLARE_DECODER(q3_k)
QUIPU_DECLARE_DECODER(q4_k)
QUIPU_DECLARE_DECODER(q5_k)
QUIPU_DECLARE_DECODER(q6_k)
QUIPU_DECLARE_DECODER(iq4_nl)
QUIPU_DECLARE_DECODER(iq4_xs)
QUIPU_DECLARE_DECODER(mxfp4)

QUIPU_DECLARE_ENCODER(f32)
QUIPU_DECLARE_ENCODER(f16)
QUIPU_DECLARE_ENCODER(bf16)

#undef QUIPU_DECLARE_DECODER
#undef QUIPU_DECLARE_ENCODER

}  // namespace quipu::codecs
