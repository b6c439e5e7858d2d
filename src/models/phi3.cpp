// Phi-3, Phi-3.5, Phi-4 (GGUF architecture "phi3"). Source: Abdin et al. 2024.
//
// A llama block whose query, key and value, and whose gate and up projections, are stored as one matrix each.
// The long versions turn by LongRoPE factors.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_phi3(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    x = block.add(x, block.attend({q, k, v}, {.window = h.sliding_window}), "attn_residual");

    const Value fed = block.gated_fused(block.norm(x, "ffn_norm"));
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
