// The codecs behind the dtype table: one decode and one reference encode function per type. `n` counts
// elements and is a multiple of the block size. Encoders accept any float, NaN and infinity included.
#pragma once

#include <cstddef>

namespace quipu::codecs {

#define QUIPU_DECLARE_CODEC(type)                                         \
  void decode_##type(const std::byte* blocks, float* out, std::size_t n); \
  void encode_##type(const float* values, std::byte* blocks, std::size_t n);

QUIPU_DECLARE_CODEC(f32)
QUIPU_DECLARE_CODEC(f16)
QUIPU_DECLARE_CODEC(bf16)
#undef QUIPU_DECLARE_CODEC

}  // namespace quipu::codecs
