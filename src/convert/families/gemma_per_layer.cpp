// Gemma 3n and Gemma 4: blocks with embeddings of their own, and some that share keys and values. Their norms
// multiply by the weight itself.
#include <cmath>
#include <limits>
#include <numbers>

#include "convert/families/groups.hpp"
#include "convert/families/parts.hpp"

namespace quipu::convert {
namespace {

const TensorRule kStreamTrunk[] = {
    {"embed_tokens", "token_embd", {Dim::vocab, Dim::width}},
    {"norm", "output_norm", {Dim::width}},
};
const TensorRule kPerLayer[] = {
    {"embed_tokens_per_layer",
     "per_layer_token_embd",
     {Dim::per_layer_vocab, Dim::any},
     Presence::optional,
     {.rows = rows::padded_to_vocab}},
    {"per_layer_model_projection", "per_layer_model_proj", {Dim::any, Dim::width}, Presence::optional},
    {"per_layer_projection_norm", "per_layer_proj_norm", {Dim::any}, Presence::optional},
    {"layers.{}.per_layer_input_gate", "blk.{}.inp_gate", {Dim::any, Dim::width}, Presence::optional},
    {"layers.{}.per_layer_projection", "blk.{}.proj", {Dim::width, Dim::any}, Presence::optional},
    {"layers.{}.post_per_layer_input_norm", "blk.{}.post_norm", {Dim::width}, Presence::optional},
};
/// Sizes of heads and feed-forwards differ between blocks; those that share have no keys and values.
const TensorRule kOwnBlocks[] = {
    {"layers.{}.input_layernorm", "blk.{}.attn_norm", {Dim::width}},
    {"layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm", {Dim::width}},
    {"layers.{}.pre_feedforward_layernorm", "blk.{}.ffn_norm", {Dim::width}},
    {"layers.{}.post_feedforward_layernorm", "blk.{}.post_ffw_norm", {Dim::width}},
    {"layers.{}.self_attn.q_proj", "blk.{}.attn_q", {Dim::any, Dim::width}},
    {"layers.{}.self_attn.k_proj", "blk.{}.attn_k", {Dim::any, Dim::width}, Presence::optional},
    {"layers.{}.self_attn.v_proj", "blk.{}.attn_v", {Dim::any, Dim::width}, Presence::optional},
    {"layers.{}.self_attn.o_proj", "blk.{}.attn_output", {Dim::width, Dim::any}},
    {"layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm", {Dim::any}},
    {"layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm", {Dim::any}, Presence::optional},
    {"layers.{}.mlp.gate_proj", "blk.{}.ffn_gate", {Dim::any, Dim::width}},
    {"layers.{}.mlp.up_proj", "blk.{}.ffn_up", {Dim::any, Dim::width}},
    {"layers.{}.mlp.down_proj", "blk.{}.ffn_down", {Dim::width, Dim::any}},
};
const TensorRule kAltUp[] = {
    {"altup_projections.{a}", "altup_proj", {Dim::width, Dim::width}},
    {"altup_unembed_projections.{a}", "altup_unembd_proj", {Dim::width, Dim::width}},
    {"layers.{}.altup.correct_output_scale", "blk.{}.altup_correct_scale.weight", {Dim::width}},
    {"layers.{}.altup.correction_coefs", "blk.{}.altup_correct_coef", {Dim::any, Dim::any}},
    {"layers.{}.altup.prediction_coefs", "blk.{}.altup_predict_coef", {Dim::any, Dim::any}},
    {"layers.{}.altup.modality_router", "blk.{}.altup_router", {Dim::any, Dim::width}},
    {"layers.{}.altup.router_norm", "blk.{}.altup_router_norm", {Dim::width}},
    {"layers.{}.laurel.linear_left", "blk.{}.laurel_l", {Dim::any, Dim::width}},
    {"layers.{}.laurel.linear_right", "blk.{}.laurel_r", {Dim::width, Dim::any}},
    {"layers.{}.laurel.post_laurel_norm", "blk.{}.laurel_post_norm", {Dim::width}},
};
const TensorRule kExpertsBeside[] = {
    {"layers.{}.layer_scalar", "blk.{}.layer_output_scale.weight", {Dim::one}, Presence::optional},
    {"layers.{}.router.proj", "blk.{}.ffn_gate_inp", {Dim::experts, Dim::width}, Presence::sparse},
    {"layers.{}.router.scale", "blk.{}.ffn_gate_inp.scale", {Dim::width}, Presence::sparse},
    {"layers.{}.router.per_expert_scale", "blk.{}.ffn_down_exps.scale", {Dim::experts}, Presence::sparse},
    {"layers.{}.experts.gate_up_proj",
     "blk.{}.ffn_gate_up_exps.weight",
     {Dim::experts, Dim::expert_ff2, Dim::width},
     Presence::sparse},
    {"layers.{}.experts.down_proj",
     "blk.{}.ffn_down_exps.weight",
     {Dim::experts, Dim::width, Dim::expert_ff},
     Presence::sparse},
    {"layers.{}.post_feedforward_layernorm_1", "blk.{}.post_ffw_norm_1", {Dim::width}, Presence::sparse},
    {"layers.{}.post_feedforward_layernorm_2", "blk.{}.post_ffw_norm_2", {Dim::width}, Presence::sparse},
    {"layers.{}.pre_feedforward_layernorm_2", "blk.{}.pre_ffw_norm_2", {Dim::width}, Presence::sparse},
};

const std::vector<KeyRule> kSharedKeys = {
    {"final_logit_softcapping", "final_logit_softcapping", Kind::number},
    kSlidingWindow,
    {"num_kv_shared_layers", "attention.shared_kv_layers"},
    {"hidden_size_per_layer_input", "embedding_length_per_layer_input"},
};
const KeyRule kAltUpKeys[] = {
    {"altup_active_idx", "altup.active_idx"},
    {"altup_num_inputs", "altup.num_inputs"},
};

constexpr std::string_view kLocal = "sliding_attention", kGlobal = "full_attention";

/// `layer_types` where config.json is silent: every period-th layer sees everything.
void set_layer_types(JsonFile& config, std::uint64_t period) {
  if (config.has("layer_types")) return;
  boost::json::array types;
  const std::uint64_t layers = std::min<std::uint64_t>(config.count("num_hidden_layers"), 4096);
  for (std::uint64_t i = 0; i < layers; ++i) types.emplace_back((i + 1) % period == 0 ? kGlobal : kLocal);
  config.set("layer_types", std::move(types));
}

void gemma3n_defaults(JsonFile& config) {
  config.set_default("head_dim", 256);
  config.set_default("rms_norm_eps", 1e-6);
  config.set_default("altup_active_idx", 0);
  config.set_default("altup_num_inputs", 4);
  config.set_default("num_kv_shared_layers", 15);
  config.set_default("final_logit_softcapping", 30.0);
  set_layer_types(config, 5);
  if (!config.has("rope_parameters")) {
    config.set_default("rope_theta", 1000000.0);
    config.set_default("rope_local_base_freq", 10000.0);
  }
  if (const auto widths = config.try_numbers("intermediate_size")) {
    for (const double width : *widths)
      if (width != widths->front())
        config.reject("intermediate_size", "different widths", "the same one for every layer");
    config.set("intermediate_sizes", *config.find("intermediate_size"));
    config.set("intermediate_size", static_cast<std::int64_t>(widths->front()));
  }
}

/// Below how many standard deviations a share of normally distributed values lies: by halving.
double deviations_of(double share) {
  if (share <= 0) return -std::numeric_limits<double>::infinity();
  double low = -40, high = 40;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::numbers::sqrt2) < share ? low : high) = middle;
  }
  return (low + high) / 2;
}

void add_gemma3n(Job& job) {
  job.metadata.set("tokenizer.ggml.add_space_prefix", gguf::Value::of_bool(false));
  add_window_pattern(job, 0);
  const auto layers = static_cast<std::size_t>(job.sizes[Dim::layers]);
  if (job.config.has("intermediate_sizes"))
    job.set_counts("feed_forward_length",
                   std::vector<std::uint64_t>(layers, static_cast<std::uint64_t>(job.sizes[Dim::ff])));
  std::vector<double> deviations;
  if (const auto shares = job.config.try_numbers("activation_sparsity_pattern")) {
    if (shares->size() != layers)
      job.config.reject("activation_sparsity_pattern", std::to_string(shares->size()) + " numbers",
                        "one for each of the " + std::to_string(layers) + " layers");
    for (const double share : *shares) {
      if (!(share >= 0 && share < 1))
        job.config.reject("activation_sparsity_pattern", std::to_string(share) + " in it",
                          "numbers of at least 0 and below 1");
      deviations.push_back(deviations_of(share));
    }
  } else {
    const double share = job.config.try_number("activation_sparsity_pattern").value_or(0.95);
    for (std::size_t i = 0; i < layers; ++i)
      deviations.push_back(deviations_of(layers > 10 && i < 10 ? share : 0));
  }
  job.set_numbers("activation_sparsity_scale", deviations);
}

void gemma4_defaults(JsonFile& config) {
  config.set_default("head_dim", 256);
  config.set_default("rms_norm_eps", 1e-6);
  config.set_default("num_kv_shared_layers", 0);
  config.set_default("hidden_size_per_layer_input", 256);
  config.set_default("sliding_window", 512);
  set_layer_types(config, 6);
  if (!config.flag_or("enable_moe_block", false)) config.set("num_experts", nullptr);
}

/// A setting that layers of full attention have of their own.
std::optional<std::uint64_t> of_full_layers(const JsonFile& config, std::string_view key,
                                            const std::vector<std::string>& types) {
  for (std::size_t i = 0; i < types.size(); ++i)
    if (types[i] == kGlobal)
      if (const auto own = config.try_count("per_layer_config." + std::to_string(i) + "." + std::string(key)))
        return own;
  return std::nullopt;
}

void add_gemma4(Job& job) {
  const JsonFile& config = job.config;
  job.metadata.set("tokenizer.ggml.add_space_prefix", gguf::Value::of_bool(false));
  job.metadata.set("tokenizer.ggml.add_bos_token", gguf::Value::of_bool(true));
  add_window_pattern(job, 0);
  const std::vector<std::string> types = config.try_texts("layer_types").value_or(std::vector<std::string>());
  const std::uint64_t local_dim = config.count("head_dim");
  const std::uint64_t dim =
      config.try_count("global_head_dim").value_or(of_full_layers(config, "head_dim", types).value_or(512));
  job.set_count("attention.key_length", dim);
  job.set_count("attention.value_length", dim);
  job.set_count("attention.key_length_swa", local_dim);
  job.set_count("attention.value_length_swa", local_dim);
  job.set_count("rope.dimension_count", dim);
  job.set_count("rope.dimension_count_swa", local_dim);

  // Fewer key heads come with keys that are values too.
  auto global_heads = of_full_layers(config, "num_key_value_heads", types);
  if (!global_heads && config.flag_or("attention_k_eq_v", false))
    global_heads = config.try_count("num_global_key_value_heads");
  if (global_heads) {
    std::vector<std::uint64_t> heads;
    for (const std::string& type : types)
      heads.push_back(type == kGlobal ? *global_heads : static_cast<std::uint64_t>(job.sizes[Dim::kv_heads]));
    job.set_counts("attention.head_count_kv", heads);
  }
  if (config.flag_or("use_double_wide_mlp", false)) {
    std::vector<std::uint64_t> widths;
    const auto layers = static_cast<std::uint64_t>(job.sizes[Dim::layers]);
    const std::uint64_t own = layers - std::min(layers, config.count("num_kv_shared_layers"));
    for (std::uint64_t i = 0; i < layers; ++i)
      widths.push_back(static_cast<std::uint64_t>(job.sizes[Dim::ff]) * (i < own ? 1 : 2));
    job.set_counts("feed_forward_length", widths);
  }

  const auto of_type = [&](std::string_view type, const char* key, double fallback) {
    return config.try_number("rope_parameters." + std::string(type) + "." + key).value_or(fallback);
  };
  job.set_number("rope.freq_base", of_type(kGlobal, "rope_theta", 1000000));
  job.set_number("rope.freq_base_swa", of_type(kLocal, "rope_theta", 10000));
  const std::string kind =
      config.try_text("rope_parameters.full_attention.rope_type").value_or("proportional");
  const double share = of_type(kGlobal, "partial_rotary_factor", kind == "default" ? 1 : 0.25);
  if ((kind != "proportional" && kind != "default") || !(share > 0 && share <= 1))
    config.reject("rope_parameters.full_attention", "\"" + kind + "\" of " + std::to_string(share),
                  "proportional or default, of a share above 0 and at most 1");
  // A share of the pairs turns; the others are divided until they stand still.
  constexpr float kStill = 1e30f;
  std::vector<float> divisors(dim / 2, kStill);
  const auto turned = static_cast<std::size_t>(share * static_cast<double>(dim) / 2);
  std::fill_n(divisors.begin(), std::min(turned, divisors.size()), 1.0f);
  job.add_tensor("rope_freqs.weight", std::move(divisors));
}

constexpr std::string_view kUnusedHead = "*lm_head.weight";

}  // namespace

std::vector<Family> gemma_per_layer() {
  std::vector<Family> list;
  list.push_back({.name = "gemma3n",
                  .classes = "Gemma3nForCausalLM|Gemma3nForConditionalGeneration",
                  .tensors = join(kStreamTrunk, kPerLayer, kOwnBlocks, kAltUp),
                  .keys = join(kSharedKeys, kAltUpKeys),
                  .defaults = gemma3n_defaults,
                  .more = add_gemma3n,
                  .ignored = kUnusedHead});
  list.push_back({.name = "gemma4",
                  .classes = "Gemma4ForCausalLM|Gemma4ForConditionalGeneration",
                  .tensors = join(kStreamTrunk, kPerLayer, kOwnBlocks, kExpertsBeside),
                  .keys = kSharedKeys,
                  .rope = Rope::none,
                  .defaults = gemma4_defaults,
                  .more = add_gemma4,
                  .ignored = kUnusedHead,
                  .plain_bpe = "gemma4"});
  return list;
}

}  // namespace quipu::convert
