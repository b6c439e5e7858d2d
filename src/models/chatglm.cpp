// GLM-4-9B and ChatGLM3 (GGUF architecture "chatglm"). Source: GLM Team 2024.
//
// A llama block with biases on query, key and value; half of each head turns, in neighbouring pairs; gate and
// up projections are stored as one matrix.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_chatglm(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/false);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    x = block.add(x, block.attend({q, k, v}), "attn_residual");

    const Value fed = block.gated_fused(block.norm(x, "ffn_norm"));
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
