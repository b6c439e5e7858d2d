// Llama and the decoders that share its block: RMSNorm before attention and a gated feed-forward.
#include <cmath>

#include "convert/families/groups.hpp"
#include "convert/families/parts.hpp"
#include "core/error.hpp"

namespace quipu::convert {
namespace {

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

/// Mistral's first models attend to a window; Llama's configurations have no such key.
void add_llama(Job& job) {
  if (job.config.try_text("model_type") == "mistral")
    if (const auto window = job.config.try_count("sliding_window"))
      job.set_count("attention.sliding_window", *window);
}

const TensorRule kOlmoTrunk[] = {
    {"embed_tokens", "token_embd", {Dim::vocab, Dim::width}},
    {"/lm_head", "output", {Dim::vocab, Dim::width}, Presence::optional},
};

/// Its norms have no weights, and their epsilon stands in the model's code.
void add_olmo(Job& job) {
  job.set_number("attention.layer_norm_epsilon", 1e-5);
  if (const auto limit = job.config.try_number("clip_qkv")) job.set_number("attention.clamp_kqv", *limit);
}

/// Factors of depth and width, as the model's code computes them (Hu et al. 2024).
void add_minicpm(Job& job) {
  const double layers = static_cast<double>(job.sizes[Dim::layers]);
  const double width = static_cast<double>(job.sizes[Dim::width]);
  job.set_number("residual_scale", job.config.number("scale_depth") / std::sqrt(layers));
  const double base = job.config.number("dim_model_base");
  if (!(base > 0)) job.config.reject("dim_model_base", fmt::format("{}", base), "a number above 0");
  job.set_number("logit_scale", width / base);
}

/// YaRN's temperature, and the growth of queries with the position.
void add_mistral3(Job& job) {
  const auto copy = [&](const char* from, const char* to) {
    if (const auto value = job.config.try_number(from)) job.set_number(to, *value);
  };
  copy("rope_parameters.mscale_all_dim|rope_scaling.mscale_all_dim", "rope.scaling.yarn_log_multiplier");
  copy("rope_parameters.llama_4_scaling_beta", "attention.temperature_scale");
}

const TensorRule kInternLm2[] = {
    {"tok_embeddings", "token_embd", {Dim::vocab, Dim::width}},
    {"norm", "output_norm", {Dim::width}},
    {"/output", "output", {Dim::vocab, Dim::width}},
    {"layers.{}.attention_norm", "blk.{}.attn_norm", {Dim::width}},
    {"layers.{}.attention.wqkv",
     "blk.{}.attn_q",
     {Dim::qkv, Dim::width},
     Presence::required,
     {.rows = rows::paired_queries_of_groups}},
    {"layers.{}.attention.wqkv",
     "blk.{}.attn_k",
     {Dim::qkv, Dim::width},
     Presence::required,
     {.rows = rows::paired_keys_of_groups}},
    {"layers.{}.attention.wqkv",
     "blk.{}.attn_v",
     {Dim::qkv, Dim::width},
     Presence::required,
     {.rows = rows::values_of_groups}},
    {"layers.{}.attention.wo", "blk.{}.attn_output", {Dim::width, Dim::q}},
    {"layers.{}.ffn_norm", "blk.{}.ffn_norm", {Dim::width}},
    {"layers.{}.feed_forward.w1", "blk.{}.ffn_gate", {Dim::ff, Dim::width}},
    {"layers.{}.feed_forward.w3", "blk.{}.ffn_up", {Dim::ff, Dim::width}},
    {"layers.{}.feed_forward.w2", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
};

const TensorRule kApertus[] = {
    {"layers.{}.attention_layernorm", "blk.{}.attn_norm", {Dim::width}},
    {"layers.{}.feedforward_layernorm", "blk.{}.ffn_norm", {Dim::width}},
};

/// The numbers of each block's xIELU, which GGUF keeps as settings.
void add_apertus(Job& job) {
  for (const char* name : {"alpha_n", "alpha_p", "beta", "eps"}) {
    std::vector<double> values;
    for (std::int64_t block = 0; block < job.sizes[Dim::layers]; ++block) {
      const std::string from = fmt::format("model.layers.{}.mlp.act_fn.{}", block, name);
      const safetensors::Tensor* tensor = job.weights.find(from);
      if (tensor == nullptr || tensor->elements() != 1 || !tensor->type->dtype ||
          info(*tensor->type->dtype).decode == nullptr)
        fail(ErrorCode::bad_file, "{}: tensor \"{}\" is missing or not one number",
             printable(job.weights.name(), 1000), from);
      float value = 0;
      info(*tensor->type->dtype).decode(tensor->bytes.data(), &value, 1);
      values.push_back(value);
    }
    job.metadata.set(fmt::format("xielu.{}", name),
                     gguf::Value{gguf::ValueType::array, gguf::Array{gguf::ValueType::f32, values}});
  }
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
      {.name = "minicpm",
       .classes = "MiniCPMForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kPairedAttention, kGatedFeedForward),
       .keys = {{"scale_emb", "embedding_scale", Kind::number}},
       .more = add_minicpm},
      {.name = "olmo",
       .classes = "OlmoForCausalLM|OLMoForCausalLM",
       .tensors = join(kOlmoTrunk, kPairedAttention, kGatedFeedForward),
       .more = add_olmo},
      {.name = "mistral3",
       .classes = "Ministral3ForCausalLM|Mistral3ForConditionalGeneration",
       .tensors = join(kTrunk, kPreNorms, kPairedAttention, kGatedFeedForward),
       .more = add_mistral3},
      {.name = "internlm2", .classes = "InternLM2ForCausalLM", .tensors = join(kInternLm2)},
      {.name = "apertus",
       .classes = "ApertusForCausalLM",
       .tensors = join(kTrunk, kApertus, kAttention, kHeadNorms, kPlainFeedForward),
       .more = add_apertus,
       .ignored = "*.mlp.act_fn.*"},
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
       .tensors = join(kTrunk, kNormsBehindAttention, kAttention, kGatedFeedForward)},
      {.name = "ernie4_5",
       .classes = "Ernie4_5ForCausalLM|Ernie4_5_ForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kAttention, kGatedFeedForward)},
      {.name = "hunyuan-dense",
       .classes = "HunYuanDenseV1ForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kAttention, kHunyuanNorms, kGatedFeedForward)},
  };
}

}  // namespace quipu::convert
