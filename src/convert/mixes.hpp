// Which type each tensor of a model gets: the mixes that llama.cpp's users know by name.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf/gguf.hpp"

namespace quipu::convert {

/// A target of `quipu quantize` and `quipu convert`.
struct Mix {
  std::string_view name;    ///< "Q4_K_M"
  DType base;               ///< what most matrices get
  std::uint32_t file_type;  ///< general.file_type
};

/// By name, any case; Q3_K, Q4_K and Q5_K mean their _M mix. Null when unknown.
const Mix* find_mix(std::string_view name);
std::string mix_names();

struct TensorPlan {
  DType dtype;
  std::optional<DType> wanted;  ///< what the mix asked for, when the row width does not fit it
};

/// One entry a tensor, in order. Vectors, norms and small helper matrices keep F32 (integers stay as they
/// are). In mixes of quantised types the output matrix (or the tied embedding) gets Q6_K; K mixes give more
/// bits to some attn_v, ffn_down and attn_output matrices. A row that is no multiple of 256 takes the type of
/// 32-value blocks next in size, or F16.
std::vector<TensorPlan> plan_types(std::span<const gguf::TensorInfo> tensors, const gguf::Metadata& metadata,
                                   const Mix& mix);
/// The types a file gets that is not quantised: each matrix keeps its own (F64 becomes F32), vectors, norms
/// and small helper matrices are F32.
std::vector<TensorPlan> plan_own_types(std::span<const gguf::TensorInfo> tensors);

/// F32, F16 or BF16.
bool is_plain_float(DType dtype);

}  // namespace quipu::convert
