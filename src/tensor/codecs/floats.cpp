// F32, F16 and BF16: one element a block.
#include <bit>
#include <cstdint>
#include <cstring>

#include "tensor/codecs.hpp"
#include "tensor/dtype.hpp"

namespace quipu {

// Half precision: 1 sign, 5 exponent (bias 15), 10 fraction bits (IEEE 754-2008, binary16).
float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1FU;
  const std::uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13);
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact in float
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

std::uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  std::uint32_t half = 0;
  if (magnitude > 0x7F800000U) {
    half = 0x7E00U | (magnitude >> 13 & 0x1FFU);  // NaN: made quiet, upper payload bits kept
  } else if (magnitude >= 0x477FF000U) {
    half = 0x7C00U;  // 65520 and above round to infinity
  } else if (magnitude >= 0x38800000U) {
    // Normal: add half of the dropped unit, minus one when the kept part is even; carries move the exponent.
    half = (magnitude - 0x38000000U + 0xFFFU + (magnitude >> 13 & 1U)) >> 13;
  } else {
    // Subnormal: adding 0.5 leaves 2^-24 as the float's last place, so the addition rounds to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    half = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F);
  }
  return static_cast<std::uint16_t>(sign | half);
}

float bf16_to_f32(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

std::uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);  // quiet NaN
  return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

namespace codecs {
namespace {

// Blocks of a file have no alignment beyond their own; std::memcpy reads them wherever they lie.
template <float (*convert)(std::uint16_t)>
void widen(const std::byte* blocks, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, blocks + 2 * i, sizeof bits);
    out[i] = convert(bits);
  }
}

template <std::uint16_t (*convert)(float)>
void narrow(const float* values, std::byte* blocks, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint16_t bits = convert(values[i]);
    std::memcpy(blocks + 2 * i, &bits, sizeof bits);
  }
}

}  // namespace

void decode_f32(const std::byte* blocks, float* out, std::size_t n) {
  if (n > 0) std::memcpy(out, blocks, n * sizeof(float));
}
void encode_f32(const float* values, std::byte* blocks, std::size_t n) {
  if (n > 0) std::memcpy(blocks, values, n * sizeof(float));
}
void decode_f16(const std::byte* blocks, float* out, std::size_t n) { widen<f16_to_f32>(blocks, out, n); }
void encode_f16(const float* values, std::byte* blocks, std::size_t n) {
  narrow<f32_to_f16>(values, blocks, n);
}
void decode_bf16(const std::byte* blocks, float* out, std::size_t n) { widen<bf16_to_f32>(blocks, out, n); }
void encode_bf16(const float* values, std::byte* blocks, std::size_t n) {
  narrow<f32_to_bf16>(values, blocks, n);
}

}  // namespace codecs
}  // namespace quipu
