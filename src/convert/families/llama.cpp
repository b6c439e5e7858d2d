// Llama and the decoders that share its block: RMSNorm before attention and a gated feed-forward.
#include "convert/families/groups.hpp"
#include "convert/families/parts.hpp"
#include "core/error.hpp"

namespace quipu::convert {
namespace {

const TensorRule kMixtralExperts[] = {
    {"layers.{}.block_sparse_moe.gate", "blk.{}.ffn_gate_inp", {Dim::experts, Dim::width}, Presence::sparse},
    {"layers.{}.block_sparse_moe.experts.{e}.w1",
     "blk.{}.ffn_gate_exps",
     {Dim::expert_ff, Dim::width},
     Presence::sparse},
    {"layers.{}.block_sparse_moe.experts.{e}.w3",
     "blk.{}.ffn_up_exps",
     {Dim::expert_ff, Dim::width},
     Presence::sparse},
    {"layers.{}.block_sparse_moe.experts.{e}.w2",
     "blk.{}.ffn_down_exps",
     {Dim::width, Dim::expert_ff},
     Presence::sparse},
};

const TensorRule kGraniteExperts[] = {
    {"layers.{}.block_sparse_moe.router.layer",
     "blk.{}.ffn_gate_inp",
     {Dim::experts, Dim::width},
     Presence::sparse},
    {"layers.{}.block_sparse_moe.input_linear",
     "blk.{}.ffn_gate_exps",
     {Dim::experts, Dim::expert_ff2, Dim::width},
     Presence::sparse,
     {.rows = rows::expert_gates, .target = {Dim::experts, Dim::expert_ff, Dim::width}}},
    {"layers.{}.block_sparse_moe.input_linear",
     "blk.{}.ffn_up_exps",
     {Dim::experts, Dim::expert_ff2, Dim::width},
     Presence::sparse,
     {.rows = rows::expert_ups, .target = {Dim::experts, Dim::expert_ff, Dim::width}}},
    {"layers.{}.block_sparse_moe.output_linear",
     "blk.{}.ffn_down_exps",
     {Dim::experts, Dim::width, Dim::expert_ff},
     Presence::sparse},
    {"layers.{}.shared_mlp.input_linear",
     "blk.{}.ffn_gate_shexp",
     {Dim::shared_ff2, Dim::width},
     Presence::optional,
     {.rows = rows::shared_gate, .target = {Dim::shared_ff, Dim::width}}},
    {"layers.{}.shared_mlp.input_linear",
     "blk.{}.ffn_up_shexp",
     {Dim::shared_ff2, Dim::width},
     Presence::optional,
     {.rows = rows::shared_up, .target = {Dim::shared_ff, Dim::width}}},
    {"layers.{}.shared_mlp.output_linear",
     "blk.{}.ffn_down_shexp",
     {Dim::width, Dim::shared_ff},
     Presence::optional},
};

const std::vector<KeyRule> kGraniteScales = {
    {"attention_multiplier", "attention.scale", Kind::number},
    {"embedding_multiplier", "embedding_scale", Kind::number},
    {"residual_multiplier", "residual_scale", Kind::number},
    {"logits_scaling", "logit_scale", Kind::number},
};

const std::vector<KeyRule> kExpertNorm = {{"norm_topk_prob", "expert_weights_norm", Kind::flag}};

const TensorRule kSeedNorms[] = {
    {"layers.{}.input_layernorm", "blk.{}.attn_norm", {Dim::width}},
    {"layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm", {Dim::width}},
};

const TensorRule kHunyuanNorms[] = {
    {"layers.{}.self_attn.query_layernorm", "blk.{}.attn_q_norm", {Dim::head_dim}},
    {"layers.{}.self_attn.key_layernorm", "blk.{}.attn_k_norm", {Dim::head_dim}},
};

/// Mistral's first models attend to a window; Llama's configurations have no such key.
void add_llama(Job& job) {
  if (job.config.try_text("model_type") == "mistral")
    if (const auto window = job.config.try_count("sliding_window"))
      job.set_count("attention.sliding_window", *window);
}

void add_granite_moe(Job& job) {
  if (const auto shared = job.config.try_count("shared_intermediate_size"))
    job.set_count("expert_shared_feed_forward_length", *shared);
}

void warn_about_window(Job& job) {
  if (job.config.flag_or("use_sliding_window", false))
    job.warn(
        "use_sliding_window is true, which GGUF has no place for in this architecture: all layers attend "
        "to everything");
}

}  // namespace

std::vector<Family> llama_like() {
  return {
      {.name = "llama",
       .classes = "LlamaForCausalLM|LLaMAForCausalLM|MistralForCausalLM|MixtralForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kPairedAttention, kGatedFeedForward, kMixtralExperts, kExperts),
       .more = add_llama},
      {.name = "smollm3",
       .classes = "SmolLM3ForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kPairedAttention, kGatedFeedForward),
       .more = warn_about_window},
      {.name = "granite",
       .classes = "GraniteForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kPairedAttention, kGatedFeedForward),
       .keys = kGraniteScales},
      {.name = "granitemoe",
       .classes = "GraniteMoeForCausalLM|GraniteMoeSharedForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kPairedAttention, kGraniteExperts),
       .keys = kGraniteScales,
       .more = add_granite_moe},
      {.name = "arcee",
       .classes = "ArceeForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kPairedAttention, kPlainFeedForward)},
      {.name = "qwen2",
       .classes = "Qwen2ForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kAttention, kGatedFeedForward),
       .more = warn_about_window},
      {.name = "qwen2moe",
       .classes = "Qwen2MoeForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kAttention, kGatedFeedForward, kExperts, kSharedExpert),
       .keys = kExpertNorm,
       .more = warn_about_window},
      {.name = "qwen3",
       .classes = "Qwen3ForCausalLM|Qwen3Model",
       .tensors = join(kTrunk, kPreNorms, kAttention, kHeadNorms, kGatedFeedForward),
       .defaults = [](JsonFile& config) { config.set_default("head_dim", 128); },
       .more = warn_about_window},
      {.name = "qwen3moe",
       .classes = "Qwen3MoeForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kAttention, kHeadNorms, kGatedFeedForward, kExperts),
       .keys = kExpertNorm,
       .more = warn_about_window},
      {.name = "olmoe",
       .classes = "OlmoeForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kAttention, kWideNorms, kExperts),
       .keys = kExpertNorm},
      {.name = "seed_oss",
       .classes = "SeedOssForCausalLM",
       .tensors = join(kTrunk, kSeedNorms, kAttention, kGatedFeedForward)},
      {.name = "ernie4_5",
       .classes = "Ernie4_5ForCausalLM|Ernie4_5_ForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kAttention, kGatedFeedForward)},
      {.name = "hunyuan-dense",
       .classes = "HunYuanDenseV1ForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kAttention, kHunyuanNorms, kGatedFeedForward)},
  };
}

}  // namespace quipu::convert
