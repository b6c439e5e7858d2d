// Mixtures of experts with parts that Mixtral and Qwen have not: dense first blocks, sigmoid scores with a
// bias for the choice, shared experts (DeepSeek-V3's kind), latent attention, MXFP4.
#include "convert/families/groups.hpp"
#include "convert/families/parts.hpp"
#include "core/error.hpp"

namespace quipu::convert {
namespace {

const TensorRule kOptionalHeadNorms[] = {
    {"layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm", {Dim::head_dim}, Presence::optional},
    {"layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm", {Dim::head_dim}, Presence::optional},
};
/// Added to the scores for the choice only; softmax routers have none.
const TensorRule kChoiceBias[] = {
    {"layers.{}.mlp.gate.e_score_correction_bias",
     "blk.{}.exp_probs_b.bias",
     {Dim::experts},
     Presence::optional},
};
const TensorRule kExaoneBias[] = {
    {"layers.{}.mlp.e_score_correction_bias", "blk.{}.exp_probs_b.bias", {Dim::experts}, Presence::optional},
};
const TensorRule kErnieBias[] = {
    {"layers.{}.mlp.moe_statics.e_score_correction_bias",
     "blk.{}.exp_probs_b.bias",
     {Dim::one, Dim::experts},
     Presence::sparse},
};

/// Multi-head latent attention. The matrix that expands keys and values is kept head by head, the keys'
/// turned, so that queries can be brought into the latent space instead.
const TensorRule kLatentAttention[] = {
    {"layers.{}.self_attn.q_proj", "blk.{}.attn_q", {Dim::q, Dim::width}, Presence::full_rank},
    {"layers.{}.self_attn.q_a_proj", "blk.{}.attn_q_a", {Dim::latent_q, Dim::width}, Presence::low_rank},
    {"layers.{}.self_attn.q_a_layernorm", "blk.{}.attn_q_a_norm", {Dim::latent_q}, Presence::low_rank},
    {"layers.{}.self_attn.q_b_proj", "blk.{}.attn_q_b", {Dim::q, Dim::latent_q}, Presence::low_rank},
    {"layers.{}.self_attn.kv_a_proj_with_mqa", "blk.{}.attn_kv_a_mqa", {Dim::latent_kv_rope, Dim::width}},
    {"layers.{}.self_attn.kv_a_layernorm", "blk.{}.attn_kv_a_norm", {Dim::latent_kv}},
    {"layers.{}.self_attn.kv_b_proj.weight",
     "blk.{}.attn_k_b.weight",
     {Dim::latent_up, Dim::latent_kv},
     Presence::required,
     {.matrices = Dim::heads, .target = {Dim::heads, Dim::latent_kv, Dim::nope}}},
    {"layers.{}.self_attn.kv_b_proj.weight",
     "blk.{}.attn_v_b.weight",
     {Dim::latent_up, Dim::latent_kv},
     Presence::required,
     {.rows = rows::latent_values, .target = {Dim::heads, Dim::v_dim, Dim::latent_kv}}},
    {"layers.{}.self_attn.o_proj", "blk.{}.attn_output", {Dim::width, Dim::attended}},
};

const TensorRule kHunyuanExperts[] = {
    {"layers.{}.mlp.gate.wg", "blk.{}.ffn_gate_inp", {Dim::experts, Dim::width}, Presence::sparse},
    {"layers.{}.mlp.shared_mlp.gate_proj",
     "blk.{}.ffn_gate_shexp",
     {Dim::shared_ff, Dim::width},
     Presence::sparse},
    {"layers.{}.mlp.shared_mlp.up_proj",
     "blk.{}.ffn_up_shexp",
     {Dim::shared_ff, Dim::width},
     Presence::sparse},
    {"layers.{}.mlp.shared_mlp.down_proj",
     "blk.{}.ffn_down_shexp",
     {Dim::width, Dim::shared_ff},
     Presence::sparse},
};

const TensorRule kMiniMaxBias[] = {
    {"layers.{}.block_sparse_moe.e_score_correction_bias",
     "blk.{}.exp_probs_b.bias",
     {Dim::experts},
     Presence::sparse},
};

// gpt-oss: gate and up stand in turns, in MXFP4 or, turned, in a plain type.
const Shape kGatesOfExperts = {Dim::experts, Dim::expert_ff, Dim::width};
const TensorRule kGptOss[] = {
    {"layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight", {Dim::heads}},
    {"layers.{}.mlp.router", "blk.{}.ffn_gate_inp", {Dim::experts, Dim::width}},
    {"layers.{}.mlp.experts.gate_up_proj_blocks",
     "blk.{}.ffn_gate_exps.weight",
     {Dim::experts, Dim::expert_ff2, Dim::width},
     Presence::required,
     {.rows = rows::alternating_gates, .mxfp4 = true, .target = kGatesOfExperts}},
    {"layers.{}.mlp.experts.gate_up_proj_blocks",
     "blk.{}.ffn_up_exps.weight",
     {Dim::experts, Dim::expert_ff2, Dim::width},
     Presence::required,
     {.rows = rows::alternating_ups, .mxfp4 = true, .target = kGatesOfExperts}},
    {"layers.{}.mlp.experts.down_proj_blocks",
     "blk.{}.ffn_down_exps.weight",
     {Dim::experts, Dim::width, Dim::expert_ff},
     Presence::required,
     {.mxfp4 = true}},
    {"layers.{}.mlp.experts.gate_up_proj",
     "blk.{}.ffn_gate_exps.weight",
     {Dim::experts, Dim::width, Dim::expert_ff2},
     Presence::required,
     {.rows = rows::alternating_gates, .matrices = Dim::experts, .target = kGatesOfExperts}},
    {"layers.{}.mlp.experts.gate_up_proj",
     "blk.{}.ffn_up_exps.weight",
     {Dim::experts, Dim::width, Dim::expert_ff2},
     Presence::required,
     {.rows = rows::alternating_ups, .matrices = Dim::experts, .target = kGatesOfExperts}},
    {"layers.{}.mlp.experts.down_proj",
     "blk.{}.ffn_down_exps.weight",
     {Dim::experts, Dim::expert_ff, Dim::width},
     Presence::required,
     {.matrices = Dim::experts, .target = {Dim::experts, Dim::width, Dim::expert_ff}}},
    {"layers.{}.mlp.experts.gate_up_proj_bias",
     "blk.{}.ffn_gate_exps.bias",
     {Dim::experts, Dim::expert_ff2},
     Presence::required,
     {.rows = rows::alternating_gates, .elements = true, .target = {Dim::experts, Dim::expert_ff}}},
    {"layers.{}.mlp.experts.gate_up_proj_bias",
     "blk.{}.ffn_up_exps.bias",
     {Dim::experts, Dim::expert_ff2},
     Presence::required,
     {.rows = rows::alternating_ups, .elements = true, .target = {Dim::experts, Dim::expert_ff}}},
    {"layers.{}.mlp.experts.down_proj_bias", "blk.{}.ffn_down_exps.bias", {Dim::experts, Dim::width}},
};

void half_turns(JsonFile& config) {
  if (!config.has("rope_parameters")) config.set_default("partial_rotary_factor", 0.5);
  sigmoid_scores(config);
}

/// A number that the configuration repeats for each layer.
void same_in_all_layers(JsonFile& config, const char* key) {
  const boost::json::value* found = config.find(key);
  if (found == nullptr || !found->is_array() || found->get_array().empty()) return;
  const boost::json::array values = found->get_array();
  for (const boost::json::value& value : values)
    if (value != values.front()) config.reject(key, "an array of different ones", "the same for all layers");
  config.set(key, values.front());
}

void hunyuan_defaults(JsonFile& config) {
  for (const char* key : {"moe_intermediate_size", "moe_topk", "num_shared_expert"})
    same_in_all_layers(config, key);
  // The shared expert is as wide as a dense feed-forward.
  config.set("shared_expert_intermediate_size", config.count("intermediate_size"));
}

/// Sizes of the heads as the tables take them; GGUF's are set below.
void latent_defaults(JsonFile& config) {
  config.set("head_dim", config.count("qk_rope_head_dim"));
  config.set("num_key_value_heads", config.count(kHeadsKeys));
  config.set_default("rms_norm_eps", 1e-6);
  config.set_default("moe_intermediate_size", config.count("intermediate_size"));
  const std::string type = config.try_text("model_type").value_or("");
  if (type == "deepseek_v3" || type == "glm4_moe_lite") sigmoid_scores(config);
}

/// In the absorbed form all heads share one key and value: the latent vector, and with the key what turns.
void add_latent(Job& job) {
  const auto size = [&](Dim dim) { return static_cast<std::uint64_t>(job.sizes[dim]); };
  const std::uint64_t rope = size(Dim::head_dim);
  job.set_count("attention.head_count_kv", 1);
  if (size(Dim::latent_q) > 0) job.set_count("attention.q_lora_rank", size(Dim::latent_q));
  job.set_count("attention.kv_lora_rank", size(Dim::latent_kv));
  job.set_count("attention.key_length", size(Dim::latent_kv_rope));
  job.set_count("attention.value_length", size(Dim::latent_kv));
  job.set_count("attention.key_length_mla", size(Dim::nope) + rope);
  job.set_count("attention.value_length_mla", size(Dim::v_dim));
  // GGUF holds a tenth of it in this architecture.
  if (const auto scale = job.config.try_number("rope_parameters.mscale_all_dim|rope_scaling.mscale_all_dim"))
    job.set_number("rope.scaling.yarn_log_multiplier", 0.1 * *scale);
}

/// The first DeepSeek: experts in all blocks behind the dense ones, weighed as they are scored.
void add_deepseek(Job& job) {
  const std::uint64_t step = job.config.try_count("moe_layer_freq").value_or(1);
  if (step != 1) job.config.reject("moe_layer_freq", fmt::format("{}", step), "1");
  if (job.config.flag_or("norm_topk_prob", false)) job.set_flag("expert_weights_norm", true);
  job.set_number("expert_weights_scale", 1);
  if (job.metadata.find(job.key("rope.scaling.type")) == nullptr)
    job.set("rope.scaling.type", gguf::Value::of_string("none"));
}

void add_ernie(Job& job) {
  const std::uint64_t step = job.config.try_count("moe_layer_interval").value_or(1);
  if (step != 1) job.config.reject("moe_layer_interval", fmt::format("{}", step), "1");
  job.set_count("interleave_moe_layer_step", step);
  job.set_count("expert_shared_feed_forward_length", static_cast<std::uint64_t>(job.sizes[Dim::shared_ff]));
}

void add_exaone(Job& job) {
  add_window_pattern(job, 0);
  job.set("rope.scaling.type", gguf::Value::of_string("none"));
  job.set_count("expert_shared_feed_forward_length", static_cast<std::uint64_t>(job.sizes[Dim::shared_ff]));
}

void add_expert_width(Job& job) {
  job.set_count("expert_feed_forward_length", static_cast<std::uint64_t>(job.sizes[Dim::expert_ff]));
}

void add_gpt_oss(Job& job) {
  add_expert_width(job);
  add_window_pattern(job, 2);
}

}  // namespace

std::vector<Family> mixtures() {
  return {
      {.name = "glm4moe",
       .classes = "Glm4MoeForCausalLM",
       .tensors = join(kTrunk, kNormsBehindAttention, kAttention, kOptionalHeadNorms, kGatedFeedForward,
                       kExperts, kSharedExperts, kChoiceBias),
       .keys = kRenormalised,
       .defaults = half_turns},
      {.name = "dots1",
       .classes = "Dots1ForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kAttention, kHeadNorms, kGatedFeedForward, kExperts, kSharedExperts,
                       kChoiceBias),
       .keys = kRenormalised,
       .defaults = sigmoid_scores},
      {.name = "deepseek",
       .classes = "DeepseekForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kPairedAttention, kGatedFeedForward, kExperts, kSharedExperts),
       .more = add_deepseek},
      {.name = "deepseek2",
       .classes = "DeepseekV2ForCausalLM|DeepseekV3ForCausalLM|Glm4MoeLiteForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kLatentAttention, kGatedFeedForward, kExperts, kSharedExperts,
                       kChoiceBias),
       .keys = kRenormalised,
       .defaults = latent_defaults,
       .more = add_latent},
      {.name = "exaone-moe",
       .classes = "ExaoneMoeForCausalLM|ExaoneMoEForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kAttention, kHeadNorms, kGatedFeedForward, kExperts, kSharedExperts,
                       kChoiceBias, kExaoneBias),
       .keys = {{"norm_topk_prob", "expert_weights_norm", Kind::flag}, kSlidingWindow},
       .defaults = sigmoid_scores,
       .more = add_exaone},
      {.name = "ernie4_5-moe",
       .classes = "Ernie4_5_MoeForCausalLM",
       .tensors =
           join(kTrunk, kPreNorms, kAttention, kGatedFeedForward, kExperts, kSharedExperts, kErnieBias),
       .more = add_ernie},
      {.name = "hunyuan-moe",
       .classes = "HunYuanMoEV1ForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kAttention, kHunyuanNorms, kHunyuanExperts, kExperts),
       .keys = {{"num_shared_expert", "expert_shared_count"}},
       .defaults = hunyuan_defaults},
      {.name = "minimax-m2",
       .classes = "MiniMaxM2ForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kAttention, kWideNorms, kMixtralExperts, kMiniMaxBias),
       .keys = {{"rotary_dim", "rope.dimension_count"}},
       .defaults = sigmoid_scores,
       .more = add_expert_width},
      {.name = "gpt-oss",
       .classes = "GptOssForCausalLM",
       .tensors = join(kTrunk, kNormsBehindAttention, kAttention, kGptOss),
       .keys = {kSlidingWindow},
       .more = add_gpt_oss,
       .quantization = "mxfp4"},
  };
}

}  // namespace quipu::convert
