// Decoders with LayerNorm: GPT-2 and its heirs, and parallel blocks.
#include "convert/families/groups.hpp"
#include "convert/families/parts.hpp"

namespace quipu::convert {
namespace {

constexpr Change kTurned{.transposed = true};

const TensorRule kGpt2[] = {
    {"wte", "token_embd", {Dim::vocab, Dim::width}},
    {"wpe", "position_embd", {Dim::positions, Dim::width}},
    {"h.{}.ln_1", "blk.{}.attn_norm", {Dim::width}},
    {"h.{}.attn.c_attn", "blk.{}.attn_qkv", {Dim::width, Dim::qkv}, Presence::required, kTurned},
    {"h.{}.attn.c_proj", "blk.{}.attn_output", {Dim::q, Dim::width}, Presence::required, kTurned},
    {"h.{}.ln_2", "blk.{}.ffn_norm", {Dim::width}},
    {"h.{}.mlp.c_fc", "blk.{}.ffn_up", {Dim::width, Dim::ff}, Presence::required, kTurned},
    {"h.{}.mlp.c_proj", "blk.{}.ffn_down", {Dim::ff, Dim::width}, Presence::required, kTurned},
    {"ln_f", "output_norm", {Dim::width}},
    {"/lm_head", "output", {Dim::vocab, Dim::width}, Presence::optional},
};
/// As GPT-2 with one key and value for all heads, and matrices the usual way round.
const TensorRule kStarcoder[] = {
    {"wte", "token_embd", {Dim::vocab, Dim::width}},
    {"wpe", "position_embd", {Dim::positions, Dim::width}},
    {"h.{}.ln_1", "blk.{}.attn_norm", {Dim::width}},
    {"h.{}.attn.c_attn", "blk.{}.attn_qkv", {Dim::qkv, Dim::width}},
    {"h.{}.attn.c_proj", "blk.{}.attn_output", {Dim::width, Dim::q}},
    {"h.{}.ln_2", "blk.{}.ffn_norm", {Dim::width}},
    {"h.{}.mlp.c_fc", "blk.{}.ffn_up", {Dim::ff, Dim::width}},
    {"h.{}.mlp.c_proj", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
    {"ln_f", "output_norm", {Dim::width}},
    {"/lm_head", "output", {Dim::vocab, Dim::width}, Presence::optional},
};
const TensorRule kStarcoder2[] = {
    {"layers.{}.mlp.c_fc", "blk.{}.ffn_up", {Dim::ff, Dim::width}},
    {"layers.{}.mlp.c_proj", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
};
const TensorRule kGptNeox[] = {
    {"embed_in", "token_embd", {Dim::vocab, Dim::width}},
    {"layers.{}.input_layernorm", "blk.{}.attn_norm", {Dim::width}},
    {"layers.{}.attention.query_key_value",
     "blk.{}.attn_qkv",
     {Dim::qkv, Dim::width},
     Presence::required,
     {.rows = rows::ungrouped_heads}},
    {"layers.{}.attention.dense", "blk.{}.attn_output", {Dim::width, Dim::q}},
    {"layers.{}.post_attention_layernorm", "blk.{}.ffn_norm", {Dim::width}},
    {"layers.{}.mlp.dense_h_to_4h", "blk.{}.ffn_up", {Dim::ff, Dim::width}},
    {"layers.{}.mlp.dense_4h_to_h", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
    {"final_layer_norm", "output_norm", {Dim::width}},
    {"/embed_out", "output", {Dim::vocab, Dim::width}, Presence::optional},
};
const TensorRule kFalcon[] = {
    {"word_embeddings", "token_embd", {Dim::vocab, Dim::width}},
    {"h.{}.input_layernorm", "blk.{}.attn_norm", {Dim::width}, Presence::optional},
    {"h.{}.ln_mlp", "blk.{}.attn_norm", {Dim::width}, Presence::optional},
    {"h.{}.ln_attn", "blk.{}.attn_norm_2", {Dim::width}, Presence::optional},
    {"h.{}.self_attention.query_key_value",
     "blk.{}.attn_qkv",
     {Dim::qkv, Dim::width},
     Presence::required,
     {.rows = rows::ungrouped_kv_heads}},
    {"h.{}.self_attention.dense", "blk.{}.attn_output", {Dim::width, Dim::q}},
    {"h.{}.mlp.dense_h_to_4h", "blk.{}.ffn_up", {Dim::ff, Dim::width}},
    {"h.{}.mlp.dense_4h_to_h", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
    {"ln_f", "output_norm", {Dim::width}},
    {"/lm_head", "output", {Dim::vocab, Dim::width}, Presence::optional},
};
const TensorRule kBloom[] = {
    {"word_embeddings", "token_embd", {Dim::vocab, Dim::width}},
    {"word_embeddings_layernorm", "token_embd_norm", {Dim::width}},
    {"h.{}.input_layernorm", "blk.{}.attn_norm", {Dim::width}},
    {"h.{}.self_attention.query_key_value",
     "blk.{}.attn_qkv",
     {Dim::qkv, Dim::width},
     Presence::required,
     {.rows = rows::ungrouped_heads}},
    {"h.{}.self_attention.dense", "blk.{}.attn_output", {Dim::width, Dim::q}},
    {"h.{}.post_attention_layernorm", "blk.{}.ffn_norm", {Dim::width}},
    {"h.{}.mlp.dense_h_to_4h", "blk.{}.ffn_up", {Dim::ff, Dim::width}},
    {"h.{}.mlp.dense_4h_to_h", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
    {"ln_f", "output_norm", {Dim::width}},
    {"/lm_head", "output", {Dim::vocab, Dim::width}, Presence::optional},
};
const TensorRule kMpt[] = {
    {"wte", "token_embd", {Dim::vocab, Dim::width}},
    {"blocks.{}.norm_1", "blk.{}.attn_norm", {Dim::width}},
    {"blocks.{}.attn.Wqkv", "blk.{}.attn_qkv", {Dim::qkv, Dim::width}},
    {"blocks.{}.attn.out_proj", "blk.{}.attn_output", {Dim::width, Dim::q}},
    {"blocks.{}.norm_2", "blk.{}.ffn_norm", {Dim::width}},
    {"blocks.{}.ffn.up_proj", "blk.{}.ffn_up", {Dim::ff, Dim::width}},
    {"blocks.{}.ffn.down_proj", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
    {"norm_f", "output_norm", {Dim::width}},
    {"/lm_head", "output", {Dim::vocab, Dim::width}, Presence::optional},
};
const TensorRule kGptJ[] = {
    {"wte", "token_embd", {Dim::vocab, Dim::width}},
    {"ln_f", "output_norm", {Dim::width}},
    {"/lm_head", "output", {Dim::vocab, Dim::width}},
    {"h.{}.ln_1", "blk.{}.attn_norm", {Dim::width}},
    {"h.{}.attn.q_proj", "blk.{}.attn_q", {Dim::q, Dim::width}},
    {"h.{}.attn.k_proj", "blk.{}.attn_k", {Dim::kv, Dim::width}},
    {"h.{}.attn.v_proj", "blk.{}.attn_v", {Dim::kv, Dim::width}},
    {"h.{}.attn.out_proj", "blk.{}.attn_output", {Dim::width, Dim::q}},
    {"h.{}.mlp.fc_in", "blk.{}.ffn_up", {Dim::ff, Dim::width}},
    {"h.{}.mlp.fc_out", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
};
const TensorRule kPhi2[] = {
    {"embed_tokens", "token_embd", {Dim::vocab, Dim::width}},
    {"layers.{}.input_layernorm", "blk.{}.attn_norm", {Dim::width}},
    {"layers.{}.self_attn.q_proj", "blk.{}.attn_q", {Dim::q, Dim::width}},
    {"layers.{}.self_attn.k_proj", "blk.{}.attn_k", {Dim::kv, Dim::width}},
    {"layers.{}.self_attn.v_proj", "blk.{}.attn_v", {Dim::kv, Dim::width}},
    {"layers.{}.self_attn.dense", "blk.{}.attn_output", {Dim::width, Dim::q}},
    {"layers.{}.mlp.fc1", "blk.{}.ffn_up", {Dim::ff, Dim::width}},
    {"layers.{}.mlp.fc2", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
    {"final_layernorm", "output_norm", {Dim::width}},
    {"/lm_head", "output", {Dim::vocab, Dim::width}, Presence::optional},
};
const TensorRule kStableLm[] = {
    {"layers.{}.input_layernorm", "blk.{}.attn_norm", {Dim::width}},
    {"layers.{}.post_attention_layernorm", "blk.{}.ffn_norm", {Dim::width}, Presence::optional},
    {"layers.{}.self_attn.q_layernorm.norms.{h}", "blk.{}.attn_q_norm", {Dim::head_dim}, Presence::optional},
    {"layers.{}.self_attn.k_layernorm.norms.{g}", "blk.{}.attn_k_norm", {Dim::head_dim}, Presence::optional},
};
const TensorRule kNemotronNorms[] = {
    {"embed_tokens", "token_embd", {Dim::vocab, Dim::width}},
    {"norm", "output_norm", {Dim::width}, Presence::required, kPlusOne},
    {"/lm_head", "output", {Dim::vocab, Dim::width}, Presence::optional},
    {"layers.{}.input_layernorm", "blk.{}.attn_norm", {Dim::width}, Presence::required, kPlusOne},
    {"layers.{}.post_attention_layernorm", "blk.{}.ffn_norm", {Dim::width}, Presence::required, kPlusOne},
};
/// One norm for attention and feed-forward, which stand side by side.
const TensorRule kCohereNorms[] = {
    {"layers.{}.input_layernorm", "blk.{}.attn_norm", {Dim::width}},
    {"layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm", {Dim::heads, Dim::head_dim}, Presence::optional},
    {"layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm", {Dim::kv_heads, Dim::head_dim}, Presence::optional},
};

/// The feed-forward is four times as wide as the stream where the configuration says nothing.
void four_times_width(JsonFile& config) {
  config.set_default(
      "intermediate_size",
      config.try_count(kFeedForwardKeys).value_or(4 * config.try_count(kWidthKeys).value_or(0)));
}

void falcon_defaults(JsonFile& config) {
  config.set_default("intermediate_size", 4 * config.count(kWidthKeys));
  const bool grouped = config.flag_or("new_decoder_architecture", false);
  const std::uint64_t heads = config.count(kHeadsKeys);
  // The key-value heads of the configuration count for the new architecture only.
  if (!grouped) {
    const std::uint64_t kv_heads = config.flag_or("multi_query", true) ? 1 : heads;
    config.set("num_key_value_heads", kv_heads);
  }
  config.set_default("max_position_embeddings", 2048);
}

void mpt_defaults(JsonFile& config) {
  const std::uint64_t ratio = config.try_count("expansion_ratio").value_or(4);
  config.set_default("intermediate_size", ratio * config.count(kWidthKeys));
  if (const auto kv_heads = config.try_count("attn_config.kv_n_heads"))
    config.set_default("num_key_value_heads", *kv_heads);
  config.set_default("layer_norm_epsilon", 1e-5);
}

void add_mpt(Job& job) {
  const JsonFile& config = job.config;
  if (const auto clip = config.try_number("attn_config.clip_qkv"))
    job.set_number("attention.clamp_kqv", *clip);
  const bool alibi = config.flag_or("attn_config.alibi", true);
  job.set_number("attention.max_alibi_bias",
                 alibi ? config.try_number("attn_config.alibi_bias_max").value_or(8) : 0);
}

void one_key_value_head(JsonFile& config) {
  config.set_default("num_key_value_heads", 1);
  four_times_width(config);
}

void add_falcon(Job& job) {
  job.set("tensor_data_layout", gguf::Value::of_string("jploski"));
  if (job.config.flag_or("alibi", false))
    job.warn("alibi is true, which GGUF files of this architecture have no place for");
}

void add_parallel_residual(Job& job) {
  job.set_flag("use_parallel_residual", job.config.flag_or("use_parallel_residual", true));
}

void add_cohere2(Job& job) {
  job.set("rope.scaling.type", gguf::Value::of_string("none"));
  add_window_pattern(job, 4);
}

void cohere_defaults(JsonFile& config) {
  config.set_default("logit_scale", 0.0625);
  config.set_default("layer_norm_eps", 1e-5);
  // 8192 in config.json, but the models were trained on model_max_length.
  if (const auto length = config.try_count("model_max_length"))
    config.set("max_position_embeddings", *length);
}

const std::vector<KeyRule> kLogitScale = {{"logit_scale", "logit_scale", Kind::number}};

}  // namespace

std::vector<Family> layer_normed() {
  return {
      {.name = "gpt2",
       .classes = "GPT2LMHeadModel",
       .tensors = join(kGpt2),
       .rope = Rope::none,
       .defaults = four_times_width,
       .roots = "transformer.|",
       .ignored = "*.attn.bias|*.attn.masked_bias"},
      {.name = "starcoder",
       .classes = "GPTBigCodeForCausalLM",
       .tensors = join(kStarcoder),
       .rope = Rope::none,
       .defaults = one_key_value_head,
       .roots = "transformer.|"},
      {.name = "starcoder2",
       .classes = "Starcoder2ForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kAttention, kStarcoder2)},
      {.name = "gptneox",
       .classes = "GPTNeoXForCausalLM",
       .tensors = join(kGptNeox),
       .more = add_parallel_residual,
       .roots = "gpt_neox.|",
       .ignored = "*.attention.bias|*.attention.masked_bias"},
      {.name = "falcon",
       .classes = "FalconForCausalLM|RWForCausalLM",
       .tensors = join(kFalcon),
       .defaults = falcon_defaults,
       .more = add_falcon,
       .roots = "transformer.|"},
      {.name = "bloom",
       .classes = "BloomForCausalLM",
       .tensors = join(kBloom),
       .rope = Rope::none,
       .defaults =
           [](JsonFile& config) {
             four_times_width(config);
             config.set_default("seq_length", 2048);
             config.set_default("num_key_value_heads", config.count(kHeadsKeys));
           },
       .roots = "transformer.|"},
      {.name = "mpt",
       .classes = "MptForCausalLM|MPTForCausalLM",
       .tensors = join(kMpt),
       .rope = Rope::none,
       .defaults = mpt_defaults,
       .more = add_mpt,
       .roots = "transformer.|"},
      {.name = "gptj",
       .classes = "GPTJForCausalLM",
       .tensors = join(kGptJ),
       .keys = {{"rotary_dim", "rope.dimension_count"}},
       .defaults =
           [](JsonFile& config) {
             config.set_default("rotary_dim", 64);
             if (!config.has("n_inner")) config.set("n_inner", 4 * config.count(kWidthKeys));
           },
       .roots = "transformer.|",
       .ignored = "*attn.bias|*attn.masked_bias"},
      {.name = "phi2",
       .classes = "PhiForCausalLM",
       .tensors = join(kPhi2),
       .defaults =
           [](JsonFile& config) {
             if (!config.has("rope_parameters")) config.set_default("partial_rotary_factor", 0.5);
           }},
      {.name = "stablelm",
       .classes = "StableLmForCausalLM|StableLMEpochForCausalLM",
       .tensors = join(kTrunk, kAttention, kStableLm, kGatedFeedForward),
       .defaults =
           [](JsonFile& config) {
             if (!config.has("rope_parameters")) config.set_default("partial_rotary_factor", 0.25);
           },
       .more = add_parallel_residual},
      {.name = "nemotron",
       .classes = "NemotronForCausalLM",
       .tensors = join(kNemotronNorms, kAttention, kPlainFeedForward),
       .keys = {{"norm_eps", "attention.layer_norm_epsilon", Kind::number}},
       .defaults =
           [](JsonFile& config) {
             if (!config.has("rope_parameters")) config.set_default("partial_rotary_factor", 0.5);
           }},
      {.name = "jais2",
       .classes = "Jais2ForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kAttention, kPlainFeedForward)},
      {.name = "command-r",
       .classes = "CohereForCausalLM",
       .tensors = join(kTrunk, kCohereNorms, kAttention, kGatedFeedForward),
       .keys = kLogitScale,
       .defaults = cohere_defaults,
       .more = [](Job& job) { job.set("rope.scaling.type", gguf::Value::of_string("none")); }},
      {.name = "cohere2",
       .classes = "Cohere2ForCausalLM",
       .tensors = join(kTrunk, kCohereNorms, kAttention, kGatedFeedForward),
       .keys = {{"logit_scale", "logit_scale", Kind::number}, kSlidingWindow},
       .defaults = cohere_defaults,
       .more = add_cohere2},
  };
}

}  // namespace quipu::convert
