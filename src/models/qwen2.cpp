// Qwen2 and Qwen2.5, dense (GGUF architecture "qwen2"). Source: Yang et al. 2024, Qwen2 Technical Report.
//
// As llama, but the rotary pairs are the halves of a head (i, i + n/2), and query, key and value have biases.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_qwen2(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    x = block.add(x, block.attend({q, k, v}), "attn_residual");

    const Value fed = block.gated(block.norm(x, "ffn_norm"));
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
