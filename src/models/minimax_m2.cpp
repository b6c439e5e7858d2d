// MiniMax-M2 (GGUF architecture "minimax-m2"). Source: MiniMax 2025.
//
// Queries and keys are normed as whole rows, a part of each head turns; experts by sigmoid scores with a bias
// for the choice.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_minimax_m2(const Hyperparameters& h, const WeightSource& w) {
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(block.norm(q, "attn_q_norm"), rotary);
    k = block.rotate(block.norm(k, "attn_k_norm"), rotary);
    x = block.add(x, block.attend({q, k, v}), "attn_residual");

    const Value fed = block.experts(
        block.norm(x, "ffn_norm"),
        {.gating = graph::Gating::sigmoid, .renormalise = h.experts.renormalise.value_or(true)});
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
