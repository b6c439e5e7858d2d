// GLM-4 0414 (GGUF architecture "glm4"). Source: GLM Team 2024; THUDM 2025.
//
// Every sub-layer is normed before and after; half of each head turns, in neighbouring pairs.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_glm4(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/false);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    const Value attended = block.norm(block.attend({q, k, v}), "post_attention_norm");
    x = block.add(x, attended, "attn_residual");

    Value fed = block.gated_fused(block.norm(x, "ffn_norm"));
    fed = block.norm(fed, "post_ffw_norm");
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
