// Gemma: norms multiply by 1 + w, which GGUF files hold added up.
#include "convert/families/groups.hpp"
#include "convert/families/parts.hpp"

namespace quipu::convert {
namespace {

const TensorRule kTrunkPlusOne[] = {
    {"embed_tokens", "token_embd", {Dim::vocab, Dim::width}},
    {"norm", "output_norm", {Dim::width}, Presence::required, kPlusOne},
};
const TensorRule kFirstNorms[] = {
    {"layers.{}.input_layernorm", "blk.{}.attn_norm", {Dim::width}, Presence::required, kPlusOne},
    {"layers.{}.post_attention_layernorm", "blk.{}.ffn_norm", {Dim::width}, Presence::required, kPlusOne},
};
const TensorRule kFourNorms[] = {
    {"layers.{}.input_layernorm", "blk.{}.attn_norm", {Dim::width}, Presence::required, kPlusOne},
    {"layers.{}.post_attention_layernorm",
     "blk.{}.post_attention_norm",
     {Dim::width},
     Presence::required,
     kPlusOne},
    {"layers.{}.pre_feedforward_layernorm", "blk.{}.ffn_norm", {Dim::width}, Presence::required, kPlusOne},
    {"layers.{}.post_feedforward_layernorm",
     "blk.{}.post_ffw_norm",
     {Dim::width},
     Presence::required,
     kPlusOne},
};
const TensorRule kHeadNormsPlusOne[] = {
    {"layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm", {Dim::head_dim}, Presence::required, kPlusOne},
    {"layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm", {Dim::head_dim}, Presence::required, kPlusOne},
};

const std::vector<KeyRule> kCaps = {
    {"attn_logit_softcapping", "attn_logit_softcapping", Kind::number},
    {"final_logit_softcapping", "final_logit_softcapping", Kind::number},
    kSlidingWindow,
};

void gemma_defaults(JsonFile& config) {
  config.set_default("head_dim", 256);
  config.set_default("rms_norm_eps", 1e-6);
}

void gemma3_defaults(JsonFile& config) {
  gemma_defaults(config);
  // The first release's configurations leave out what the class has.
  config.set_default("max_position_embeddings", 131072);
  config.set_default("num_attention_heads", 8);
  config.set_default("num_key_value_heads", 4);
  config.set_default("vocab_size", 262208);
  if (!config.has("rope_parameters")) {
    config.set_default("rope_theta", 1000000.0);
    config.set_default("rope_local_base_freq", 10000.0);
  }
}

/// Gemma's turn tokens stand in the file's own vocabulary; no space is put in front of a text.
void no_space_prefix(Job& job) {
  job.metadata.set("tokenizer.ggml.add_space_prefix", gguf::Value::of_bool(false));
}

void add_gemma2(Job& job) {
  no_space_prefix(job);
  add_window_pattern(job, 2);
}

void add_gemma3(Job& job) {
  no_space_prefix(job);
  add_window_pattern(job, 6);
}

/// EmbeddingGemma: Gemma 3 whose tokens see the whole text.
void add_gemma_embedding(Job& job) {
  if (!job.config.flag_or("use_bidirectional_attention", true))
    job.config.reject("use_bidirectional_attention", "false", "true: this class is read as EmbeddingGemma");
  add_gemma3(job);
  job.set_flag("attention.causal", false);
}

constexpr std::string_view kUnused = "*lm_head.weight";

}  // namespace

std::vector<Family> gemma_like() {
  std::vector<Family> list = {
      {.name = "gemma",
       .classes = "GemmaForCausalLM",
       .tensors = join(kTrunkPlusOne, kFirstNorms, kAttention, kGatedFeedForward),
       .defaults = gemma_defaults,
       .more = no_space_prefix,
       .ignored = kUnused},
      {.name = "gemma2",
       .classes = "Gemma2ForCausalLM",
       .tensors = join(kTrunkPlusOne, kFourNorms, kAttention, kGatedFeedForward),
       .keys = kCaps,
       .defaults = gemma_defaults,
       .more = add_gemma2,
       .ignored = kUnused},
      {.name = "gemma3",
       .classes = "Gemma3ForCausalLM|Gemma3ForConditionalGeneration",
       .tensors = join(kTrunkPlusOne, kFourNorms, kAttention, kHeadNormsPlusOne, kGatedFeedForward),
       .keys = kCaps,
       .defaults = gemma3_defaults,
       .more = add_gemma3,
       .ignored = kUnused},
  };
  list.push_back(
      {.name = "gemma-embedding",
       .classes = "Gemma3TextModel",
       .tensors = join(kTrunkPlusOne, kFourNorms, kAttention, kHeadNormsPlusOne, kGatedFeedForward),
       .keys = kCaps,
       .defaults = gemma3_defaults,
       .more = add_gemma_embedding,
       .ignored = kUnused});
  return list;
}

}  // namespace quipu::convert
