#include "convert/mixes.hpp"

#include <algorithm>
#include <array>

namespace quipu::convert {
namespace {

constexpr std::array kMixes{
    Mix{"F32", DType::f32, 0},        Mix{"F16", DType::f16, 1},      Mix{"BF16", DType::bf16, 32},
    Mix{"Q4_0", DType::q4_0, 2},      Mix{"Q4_1", DType::q4_1, 3},    Mix{"Q5_0", DType::q5_0, 8},
    Mix{"Q5_1", DType::q5_1, 9},      Mix{"Q8_0", DType::q8_0, 7},    Mix{"Q2_K", DType::q2_k, 10},
    Mix{"Q3_K_S", DType::q3_k, 11},   Mix{"Q3_K_M", DType::q3_k, 12}, Mix{"Q3_K_L", DType::q3_k, 13},
    Mix{"Q4_K_S", DType::q4_k, 14},   Mix{"Q4_K_M", DType::q4_k, 15}, Mix{"Q5_K_S", DType::q5_k, 16},
    Mix{"Q5_K_M", DType::q5_k, 17},   Mix{"Q6_K", DType::q6_k, 18},   Mix{"IQ4_NL", DType::iq4_nl, 25},
    Mix{"IQ4_XS", DType::iq4_xs, 30},
};

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return result;
}

std::size_t dimensions(const gguf::TensorInfo& tensor) {
  std::size_t count = tensor.shape.size();
  while (count > 1 && tensor.shape[count - 1] == 1) --count;
  return count;
}

/// Small or sensitive matrices that are never quantised.
bool is_kept(const gguf::TensorInfo& tensor) {
  const std::string_view name = tensor.name;
  if (dimensions(tensor) < 2 || !name.ends_with(".weight")) return true;
  for (const std::string_view part :
       {"_norm", "ffn_gate_inp", "position_embd", "token_types", "ssm_conv1d", "shortconv.conv", "time_mix_",
        "attn_rel_b", "altup_correct_coef", "altup_predict_coef"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

/// "blk.7.ffn_down.weight": 7.
std::optional<std::int64_t> block_of(std::string_view name) {
  if (!name.starts_with("blk.")) return std::nullopt;
  std::int64_t number = 0;
  std::size_t i = 4;
  for (; i < name.size() && i < 10 && name[i] >= '0' && name[i] <= '9'; ++i)
    number = number * 10 + (name[i] - '0');
  if (i == 4 || i >= name.size() || name[i] != '.') return std::nullopt;
  return number;
}

/// The first and last eighth of the layers, and every third between.
bool takes_more_bits(std::int64_t layer, std::int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

/// What plan_types knows of the model.
struct Facts {
  std::int64_t layers = 0;
  std::uint64_t heads_per_kv = 1, experts = 0;
  bool has_output = false;
};

Facts facts_of(std::span<const gguf::TensorInfo> tensors, const gguf::Metadata& metadata) {
  Facts facts;
  for (const gguf::TensorInfo& tensor : tensors) {
    if (const auto block = block_of(tensor.name)) facts.layers = std::max(facts.layers, *block + 1);
    if (tensor.name == "output.weight") facts.has_output = true;
  }
  const std::string architecture = metadata.try_string("general.architecture").value_or("");
  const auto number = [&](const std::string& key) -> std::uint64_t {
    const gguf::Value* value = metadata.find(architecture + key);  // may be an array, one a layer
    if (value == nullptr) return 0;
    const auto* found = std::get_if<std::uint64_t>(&value->data);
    return found == nullptr ? 0 : *found;
  };
  const std::uint64_t heads = number(".attention.head_count"), kv_heads = number(".attention.head_count_kv");
  if (kv_heads > 0) facts.heads_per_kv = heads / kv_heads;
  facts.experts = number(".expert_count");
  return facts;
}

/// The mixes' rules for a matrix of one block. Source: the defaults of llama.cpp's quantiser without an
/// importance matrix.
DType block_type(const Mix& mix, std::string_view name, std::int64_t layer, const Facts& facts) {
  const auto is = [&](std::string_view mix_name) { return mix.name == mix_name; };
  const bool more = takes_more_bits(layer, facts.layers);
  const bool first_eighth = layer < facts.layers / 8;
  const bool eight_experts = facts.experts == 8;
  if (name.ends_with("attn_v.weight")) {
    if (is("Q2_K")) return facts.heads_per_kv >= 4 ? DType::q4_k : DType::q3_k;
    if (eight_experts) return DType::q8_0;
    if (is("Q3_K_M")) return layer < 2 ? DType::q5_k : DType::q4_k;
    if (is("Q3_K_L")) return DType::q5_k;
    if ((is("IQ4_NL") || is("IQ4_XS")) && facts.heads_per_kv >= 4) return DType::q5_k;
    if ((is("Q4_K_M") || is("Q5_K_M")) && more) return DType::q6_k;
    if (is("Q4_K_S") && layer < 4) return DType::q5_k;
  } else if (name.ends_with("attn_k.weight")) {
    if (eight_experts) return DType::q8_0;
  } else if (name.find("ffn_down") != std::string_view::npos) {
    if (is("Q2_K")) return DType::q3_k;
    if (is("Q3_K_M")) return layer < facts.layers / 16 ? DType::q5_k : DType::q4_k;
    if (is("Q3_K_L")) return DType::q5_k;
    if ((is("Q4_K_M") || is("Q5_K_M")) && more) return DType::q6_k;
    if ((is("IQ4_NL") || is("IQ4_XS") || is("Q4_K_S")) && first_eighth) return DType::q5_k;
  } else if (name.ends_with("attn_output.weight")) {
    const bool takes_five = mix.base == DType::q2_k || mix.base == DType::q3_k || mix.base == DType::q4_k ||
                            mix.base == DType::iq4_nl || mix.base == DType::iq4_xs;
    if (eight_experts && takes_five) return DType::q5_k;
    if (is("Q2_K")) return DType::q3_k;
    if (is("Q3_K_M")) return DType::q4_k;
    if (is("Q3_K_L")) return DType::q5_k;
  } else if (name.ends_with("attn_qkv.weight")) {
    if (is("Q3_K_M") || is("Q3_K_L")) return DType::q4_k;
    if (is("Q4_K_M")) return DType::q5_k;
    if (is("Q5_K_M")) return DType::q6_k;
  }
  return mix.base;
}

DType wanted_type(const Mix& mix, const gguf::TensorInfo& tensor, const Facts& facts) {
  if (is_plain_float(mix.base)) return mix.base;
  const bool is_head =
      tensor.name == "output.weight" || (!facts.has_output && tensor.name == "token_embd.weight");
  if (is_head) {
    if (tensor.shape[0] % info(mix.base).block_size != 0) return DType::q8_0;
    return mix.base == DType::q8_0 ? DType::q8_0 : DType::q6_k;
  }
  const auto layer = block_of(tensor.name);
  return layer ? block_type(mix, tensor.name, *layer, facts) : mix.base;
}

/// The type of smaller blocks that holds about as many bits.
DType smaller_blocks(DType dtype) {
  switch (dtype) {
    case DType::q2_k:
    case DType::q3_k:
      return DType::q4_0;
    case DType::iq4_xs:
      return DType::iq4_nl;
    case DType::q4_k:
      return DType::q5_0;
    case DType::q5_k:
      return DType::q5_1;
    case DType::q6_k:
      return DType::q8_0;
    default:
      return DType::f16;
  }
}

TensorPlan fitted(DType wanted, std::int64_t width) {
  DType dtype = wanted;
  if (width % info(dtype).block_size != 0) dtype = smaller_blocks(dtype);
  if (width % info(dtype).block_size != 0) dtype = DType::f16;
  if (dtype == wanted) return {dtype, std::nullopt};
  return {dtype, wanted};
}

}  // namespace

const Mix* find_mix(std::string_view name) {
  std::string wanted = upper(name);
  if (wanted == "Q3_K" || wanted == "Q4_K" || wanted == "Q5_K") wanted += "_M";
  const auto* found =
      std::find_if(kMixes.begin(), kMixes.end(), [&](const Mix& mix) { return mix.name == wanted; });
  return found == kMixes.end() ? nullptr : found;
}

std::string mix_names() {
  std::string names;
  for (const Mix& mix : kMixes) names += (names.empty() ? "" : ", ") + std::string(mix.name);
  return names;
}

std::vector<TensorPlan> plan_types(std::span<const gguf::TensorInfo> tensors, const gguf::Metadata& metadata,
                                   const Mix& mix) {
  const Facts facts = facts_of(tensors, metadata);
  std::vector<TensorPlan> plan;
  plan.reserve(tensors.size());
  for (const gguf::TensorInfo& tensor : tensors) {
    if (info(tensor.dtype).is_integer)
      plan.push_back({tensor.dtype, std::nullopt});
    else if (is_kept(tensor))
      plan.push_back({DType::f32, std::nullopt});
    else
      plan.push_back(fitted(wanted_type(mix, tensor, facts), tensor.shape[0]));
  }
  return plan;
}

std::vector<TensorPlan> plan_own_types(std::span<const gguf::TensorInfo> tensors) {
  std::vector<TensorPlan> plan;
  plan.reserve(tensors.size());
  for (const gguf::TensorInfo& tensor : tensors) {
    const bool own = !is_kept(tensor) && tensor.dtype != DType::f64;
    plan.push_back({info(tensor.dtype).is_integer || own ? tensor.dtype : DType::f32, std::nullopt});
  }
  return plan;
}

bool is_plain_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

}  // namespace quipu::convert
