// Element types of tensors: every type a GGUF file may hold, known by name and size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace quipu {

/// Values are the type numbers of the GGUF format.
enum class DType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q8_1 = 9,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  q8_k = 15,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  i8 = 24,
  i16 = 25,
  i32 = 26,
  i64 = 27,
  f64 = 28,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
  nvfp4 = 40,
  q1_0 = 41,
  q2_0 = 42,
};

/// A dtype as a record of functions (one row per type in dtype.cpp; no other code switches on the type to
/// find these). A row of `n` elements holds n / block_size blocks, each `block_bytes` long.
struct DTypeInfo {
  DType dtype;
  std::string_view name;  ///< the field's name, upper case as tools print it: "Q4_K"
  std::uint32_t block_size;
  std::uint32_t block_bytes;
  bool is_integer;  ///< I8…I64: metadata-like tensors, never weights
  /// Exact values of `n` elements (a multiple of block_size) as float. Null: quipu cannot decode this type
  /// yet.
  void (*decode)(const std::byte* blocks, float* out, std::size_t n);
  /// Reference encoder: round-to-nearest within the format as its reference implementation does. Null: not
  /// yet.
  void (*encode)(const float* values, std::byte* blocks, std::size_t n);
};

/// All known types.
std::span<const DTypeInfo> all_dtypes();
/// By GGUF number; null when the number is unknown or withdrawn.
const DTypeInfo* find_dtype(std::uint32_t gguf_number);
/// By name, any case ("q4_k"); null when unknown.
const DTypeInfo* find_dtype(std::string_view name);
/// Never fails for a `DType` value.
const DTypeInfo& info(DType dtype);
inline std::string_view to_string(DType dtype) { return info(dtype).name; }
/// Bytes of a row of `n` elements; n must be a multiple of the block size.
std::size_t row_bytes(DType dtype, std::size_t n);

/// IEEE half and bfloat16 conversions, round to nearest even; NaN stays NaN, subnormals are exact.
float f16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_f16(float value);
float bf16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_bf16(float value);

}  // namespace quipu
