// gpt-oss (GGUF architecture "gpt-oss"). Source: OpenAI 2025.
//
// Every head has a sink, a logit that takes its share of the softmax without a value; every other block sees
// a window. Experts have biases and a clamped gate; their weights are a softmax of the chosen logits. YaRN's
// ramp is not rounded to whole pairs. The file names the feed-forward's norm post_attention_norm.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Activation;
using graph::Value;

graph::Graph build_gpt_oss(const Hyperparameters& h, const WeightSource& w) {
  Hyperparameters unrounded = h;
  unrounded.rope_scaling.whole_pairs = false;
  Decoder model(unrounded, w);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    const Value attended = block.attend({q, k, v}, {.window = block.window(2)});
    x = block.add(x, attended, "attn_residual");

    const Value fed = block.experts(block.norm(x, "post_attention_norm"),
                                    {.gating = graph::Gating::softmax_of_chosen,
                                     .activation = Activation::gelu_quick,  // x * sigmoid(1.702 x)
                                     .limit = 7,
                                     .up_shift = 1});
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
