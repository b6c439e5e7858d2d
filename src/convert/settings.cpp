// The metadata that families share. Source of names and defaults: the GGUF convention (gguf-py's constants
// and llama.cpp's converter).
#include <cmath>
#include <limits>
#include <numbers>

#include "convert/family.hpp"
#include "core/error.hpp"

namespace quipu::convert {
namespace {

const std::vector<KeyRule> kCommonKeys = {
    {kContextKeys, "context_length"},
    {kWidthKeys, "embedding_length"},
    {kLayersKeys, "block_count"},
    {kFeedForwardKeys, "feed_forward_length"},
    {kHeadsKeys, "attention.head_count"},
    {kKvHeadsKeys, "attention.head_count_kv"},
    {"head_dim", "attention.key_length"},
    {"head_dim", "attention.value_length"},
    {"rms_norm_eps|norm_eps", "attention.layer_norm_rms_epsilon", Kind::number},
    {"layer_norm_eps|layer_norm_epsilon|norm_epsilon", "attention.layer_norm_epsilon", Kind::number},
    {kExpertsKeys, "expert_count"},
    {kExpertsUsedKeys, "expert_used_count"},
    {"moe_intermediate_size", "expert_feed_forward_length"},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length"},
    {kSharedExpertsKeys, "expert_shared_count"},
    {kLeadingDenseKeys, "leading_dense_block_count"},
    {"routed_scaling_factor", "expert_weights_scale", Kind::number},
    {"n_group", "expert_group_count"},
    {"topk_group", "expert_group_used_count"},
    {"vocab_size", "vocab_size"},
};

void apply(Job& job, const std::vector<KeyRule>& rules) {
  for (const KeyRule& rule : rules) {
    switch (rule.kind) {
      case Kind::count:
        if (const auto value = job.config.try_count(rule.from)) job.set_count(rule.to, *value);
        break;
      case Kind::number:
        if (const auto value = job.config.try_number(rule.from)) job.set_number(rule.to, *value);
        break;
      case Kind::flag:
        if (const auto value = job.config.try_flag(rule.from)) job.set_flag(rule.to, *value);
        break;
      case Kind::text:
        if (const auto value = job.config.try_text(rule.from))
          job.set(rule.to, gguf::Value::of_string(*value));
        break;
    }
  }
}

/// The object with the rotary settings: `rope_parameters` of newer configurations (one for full attention
/// where kinds of layers differ), `rope_scaling` of older ones.
std::string rope_object(const JsonFile& config) {
  for (const char* name : {"rope_parameters.full_attention", "rope_parameters", "rope_scaling"})
    if (const auto* value = config.find(name); value != nullptr && value->is_object()) return name;
  return "rope_parameters";
}

/// Divisors of the rotary frequencies, one a pair. Source: Llama 3.1's published code (`apply_scaling`).
std::vector<float> llama3_divisors(const JsonFile& config, const std::string& in, double base,
                                   std::int64_t dims) {
  const auto read = [&](const char* name, double fallback) {
    return config.try_number(in + "." + name).value_or(fallback);
  };
  const double factor = read("factor", 8), low = read("low_freq_factor", 1),
               high = read("high_freq_factor", 4);
  const double context = read("original_max_position_embeddings",
                              config.try_number("original_max_position_embeddings").value_or(8192));
  if (!(factor > 0 && low > 0 && high > 0 && context > 0))
    config.reject(in, "an object", "factor, low_freq_factor, high_freq_factor above 0");
  std::vector<float> divisors;
  for (std::int64_t i = 0; i < dims; i += 2) {
    const double wavelength =
        2 * std::numbers::pi * std::pow(base, static_cast<double>(i) / static_cast<double>(dims));
    double divisor = 1;
    if (wavelength > context / low) {
      divisor = factor;
    } else if (wavelength >= context / high) {
      const double smooth = (context / wavelength - low) / (high - low);
      divisor = 1 / ((1 - smooth) / factor + smooth);
    }
    divisors.push_back(static_cast<float>(divisor));
  }
  return divisors;
}

void add_yarn(Job& job, const std::string& in, double factor) {
  const JsonFile& config = job.config;
  job.set_count("rope.scaling.original_context_length",
                config.try_count(in + ".original_max_position_embeddings|original_max_position_embeddings")
                    .value_or(config.count(kContextKeys)));
  if (const auto value = config.try_number(in + ".beta_fast"))
    job.set_number("rope.scaling.yarn_beta_fast", *value);
  if (const auto value = config.try_number(in + ".beta_slow"))
    job.set_number("rope.scaling.yarn_beta_slow", *value);
  if (const auto value = config.try_number(in + ".extrapolation_factor"))
    job.set_number("rope.scaling.yarn_ext_factor", *value);
  // GGUF's factor multiplies the paper's temperature; the configuration's replaces it.
  if (const auto value = config.try_number(in + ".attention_factor|" + in + ".attn_factor"))
    job.set_number("rope.scaling.attn_factor", *value / (0.1 * std::log(factor) + 1));
}

/// Long and short divisors of LongRoPE (Ding et al. 2024), which Phi-3 uses.
void add_longrope(Job& job, const std::string& in, std::int64_t dims) {
  const JsonFile& config = job.config;
  const double context = config.number(kContextKeys);
  const std::string original_keys = in + ".original_max_position_embeddings|original_max_position_embeddings";
  const double original = config.number(original_keys);
  if (original < 2) config.reject(original_keys, fmt::format("{}", original), "at least 2");
  job.set_count("rope.scaling.original_context_length", config.count(original_keys));
  const double scale = context / original;
  const double attention = scale > 1 ? std::sqrt(1 + std::log(scale) / std::log(original)) : 1;
  // Phi-3.5-MoE states one for short and one for long texts; GGUF holds one number.
  const auto stated = config.try_number(in + ".attention_factor|" + in + ".short_mscale");
  if (config.try_number(in + ".long_mscale|" + in + ".short_mscale") !=
      config.try_number(in + ".short_mscale"))
    config.reject(in + ".long_mscale", "another number than short_mscale", "the same, GGUF holds one");
  job.set_number("rope.scaling.attn_factor", stated.value_or(attention));
  for (const std::string kind : {"long", "short"}) {
    const std::string key = in + "." + kind + "_factor";
    const auto values = config.try_numbers(key);
    if (!values) config.reject_missing(key);
    if (values->size() != static_cast<std::size_t>(dims / 2))
      config.reject(key, fmt::format("an array of {}", values->size()),
                    fmt::format("one for each of the {} rotated pairs", dims / 2));
    job.add_tensor("rope_factors_" + kind + ".weight", std::vector<float>(values->begin(), values->end()));
  }
}

/// How a router scores experts.
void add_scoring(Job& job) {
  constexpr std::string_view key = "scoring_func";
  const auto name = job.config.try_text(key);
  if (!name) return;
  if (*name != "softmax" && *name != "sigmoid")
    job.config.reject(key, "\"" + printable(*name) + "\"", "softmax or sigmoid");
  job.set_count("expert_gating_func", *name == "softmax" ? 1 : 2);
}

}  // namespace

void Job::set_count(std::string_view name, std::uint64_t value) {
  if (value > std::numeric_limits<std::uint32_t>::max())
    config.reject(name, fmt::format("{}", value), "at most 4294967295");
  set(name, gguf::Value::of_u32(static_cast<std::uint32_t>(value)));
}

void Job::set_number(std::string_view name, double value) {
  set(name, gguf::Value::of_f32(static_cast<float>(value)));
}

void Job::set_counts(std::string_view name, const std::vector<std::uint64_t>& values) {
  set(name, {gguf::ValueType::array, gguf::Array{gguf::ValueType::u32, values}});
}

void Job::set_flags(std::string_view name, const std::vector<bool>& values) {
  set(name, {gguf::ValueType::array, gguf::Array{gguf::ValueType::boolean,
                                                 std::vector<std::uint64_t>(values.begin(), values.end())}});
}

void Job::set_numbers(std::string_view name, const std::vector<double>& values) {
  std::vector<double> rounded;
  for (const double value : values) rounded.push_back(static_cast<double>(static_cast<float>(value)));
  set(name, {gguf::ValueType::array, gguf::Array{gguf::ValueType::f32, std::move(rounded)}});
}

void Job::add_tensor(std::string name, std::vector<float> values) {
  TensorSource source;
  source.info = {std::move(name), DType::f32, {static_cast<std::int64_t>(values.size()), 1, 1, 1}};
  source.values = std::move(values);
  tensors.push_back(std::move(source));
}

void add_settings(Job& job, const Family& family) {
  apply(job, kCommonKeys);
  add_scoring(job);
  if (family.rope == Rope::rotary) add_rope(job);
  apply(job, family.keys);
  if (family.more != nullptr) family.more(job);
}

void add_rope(Job& job) {
  const JsonFile& config = job.config;
  const std::string in = rope_object(config);
  const double share = config
                           .try_number(in +
                                       ".partial_rotary_factor|partial_rotary_factor|rotary_pct|"
                                       "rope_pct|rope_percent")
                           .value_or(1);
  if (!(share > 0 && share <= 1))
    config.reject("partial_rotary_factor", fmt::format("{}", share), "a number above 0 and at most 1");
  const auto dims = static_cast<std::int64_t>(share * static_cast<double>(job.sizes[Dim::head_dim]));
  job.set_count("rope.dimension_count", static_cast<std::uint64_t>(dims));
  const double base = config.try_number(in + ".rope_theta|rope_theta|rotary_emb_base").value_or(10000);
  job.set_number("rope.freq_base", base);
  const auto local = config.try_number(
      "rope_parameters.sliding_attention.rope_theta|rope_local_base_freq|local_rope_theta|swa_rope_theta");
  if (local) job.set_number("rope.freq_base_swa", *local);

  const std::string type = config.try_text(in + ".rope_type|" + in + ".type").value_or("default");
  if (type == "default" || type == "none" || type == "mrope") return;
  const auto alpha = config.try_number(in + ".alpha");
  if (type == "dynamic" && alpha) {  // Hunyuan's: a base for all positions
    if (!(*alpha >= 1) || dims <= 2)
      config.reject(in + ".alpha", fmt::format("{}", *alpha), "a number of at least 1");
    const double size = static_cast<double>(dims);
    job.set_number("rope.freq_base", base * std::pow(*alpha, size / (size - 2)));
    return;
  }
  if (type == "dynamic") {
    job.warn(
        fmt::format("{}.rope_type is dynamic, which is left out: it changes nothing up to the {} "
                    "positions the model was trained for",
                    in, config.count(kContextKeys)));
    return;
  }
  if (type == "llama3") {
    job.add_tensor("rope_freqs.weight", llama3_divisors(config, in, base, dims));
    return;
  }
  if (type == "longrope" || type == "su") {
    job.set("rope.scaling.type", gguf::Value::of_string("longrope"));
    add_longrope(job, in, dims);
    return;
  }
  if (type != "linear" && type != "yarn")
    fail(ErrorCode::unsupported,
         "{}: {}.rope_type is \"{}\", which is not supported (default, linear, dynamic, llama3, yarn and "
         "longrope are)",
         printable(config.name(), 1000), in, printable(type));
  const double factor = config.number(in + ".factor");
  if (!(factor >= 1)) config.reject(in + ".factor", fmt::format("{}", factor), "a number of at least 1");
  job.set("rope.scaling.type", gguf::Value::of_string(type));
  job.set_number("rope.scaling.factor", factor);
  if (type == "yarn") add_yarn(job, in, factor);
}

}  // namespace quipu::convert
