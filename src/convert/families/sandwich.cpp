// Decoders that norm what attention and feed-forward give.
#include "convert/families/groups.hpp"
#include "convert/families/parts.hpp"

namespace quipu::convert {
namespace {

const TensorRule kPostNorms[] = {
    {"layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm", {Dim::width}},
    {"layers.{}.post_feedforward_layernorm", "blk.{}.post_ffw_norm", {Dim::width}},
};
const TensorRule kGlm4[] = {
    {"layers.{}.input_layernorm", "blk.{}.attn_norm", {Dim::width}},
    {"layers.{}.post_self_attn_layernorm", "blk.{}.post_attention_norm", {Dim::width}},
    {"layers.{}.post_attention_layernorm", "blk.{}.ffn_norm", {Dim::width}},
    {"layers.{}.post_mlp_layernorm", "blk.{}.post_ffw_norm", {Dim::width}},
    {"layers.{}.mlp.gate_up_proj", "blk.{}.ffn_up", {Dim::ff2, Dim::width}},
    {"layers.{}.mlp.down_proj", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
};

void every_layer_said(Job& job) { add_window_pattern(job, 0); }

}  // namespace

std::vector<Family> sandwich_normed() {
  return {
      {.name = "olmo2",
       .classes = "Olmo2ForCausalLM|Olmo3ForCausalLM",
       .tensors = join(kTrunk, kPostNorms, kAttention, kWideNorms, kGatedFeedForward),
       .keys = {kSlidingWindow},
       .more = every_layer_said},
      {.name = "exaone4",
       .classes = "Exaone4ForCausalLM",
       .tensors = join(kTrunk, kPostNorms, kAttention, kHeadNorms, kGatedFeedForward),
       .keys = {kSlidingWindow},
       .more = every_layer_said},
      {.name = "glm4",
       .classes = "Glm4ForCausalLM",
       .tensors = join(kTrunk, kAttention, kGlm4),
       .defaults =
           [](JsonFile& config) {
             if (!config.has("rope_parameters")) config.set_default("partial_rotary_factor", 0.5);
           }},
  };
}

}  // namespace quipu::convert
