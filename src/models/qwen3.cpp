// Qwen3, dense (GGUF architecture "qwen3"). Source: Yang et al. 2025, Qwen3 Technical Report.
//
// As qwen2 without the biases; queries and keys are normed per head before they turn (QK-norm).
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_qwen3(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(block.norm(q, "attn_q_norm", block.key_dim), rotary);
    k = block.rotate(block.norm(k, "attn_k_norm", block.key_dim), rotary);
    x = block.add(x, block.attend({q, k, v}), "attn_residual");

    const Value fed = block.gated(block.norm(x, "ffn_norm"));
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
