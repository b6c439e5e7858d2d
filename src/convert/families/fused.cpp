// Decoders that hold queries, keys and values, or gate and up, in one matrix, and keep it so in GGUF.
#include "convert/families/groups.hpp"
#include "convert/families/parts.hpp"

namespace quipu::convert {
namespace {

const TensorRule kPhi3[] = {
    {"layers.{}.self_attn.qkv_proj", "blk.{}.attn_qkv", {Dim::qkv, Dim::width}},
    {"layers.{}.self_attn.o_proj", "blk.{}.attn_output", {Dim::width, Dim::q}},
    {"layers.{}.mlp.gate_up_proj", "blk.{}.ffn_up", {Dim::ff2, Dim::width}},
    {"layers.{}.mlp.down_proj", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
};

const TensorRule kGlm[] = {
    {"layers.{}.mlp.gate_up_proj", "blk.{}.ffn_up", {Dim::ff2, Dim::width}},
    {"layers.{}.mlp.down_proj", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
};

/// Readers take an absent window for Phi-3's 2047; 0 says that there is none.
void add_phi3(Job& job) {
  const JsonFile& config = job.config;
  job.set_count("attention.sliding_window", config.try_count("sliding_window").value_or(0));
  const std::string original = job.key("rope.scaling.original_context_length");
  if (job.metadata.find(original) == nullptr)
    job.set_count("rope.scaling.original_context_length",
                  config
                      .try_count("rope_parameters.original_max_position_embeddings|"
                                 "original_max_position_embeddings")
                      .value_or(config.count(kContextKeys)));
}

}  // namespace

std::vector<Family> fused() {
  return {
      {.name = "phi3",
       .classes = "Phi3ForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kPhi3),
       .more = add_phi3},
      {.name = "phimoe",
       .classes = "PhimoeForCausalLM|PhiMoEForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kAttention, kMixtralExperts),
       .more = add_phi3},
      {.name = "chatglm",
       .classes = "GlmForCausalLM",
       .tensors = join(kTrunk, kPreNorms, kAttention, kGlm),
       .defaults =
           [](JsonFile& config) {
             if (!config.has("rope_parameters")) config.set_default("partial_rotary_factor", 0.5);
           }},
  };
}

}  // namespace quipu::convert
