// ERNIE 4.5, text, mixture of experts (GGUF architecture "ernie4_5-moe"). Source: ERNIE Team 2025.
//
// A bias takes part in the choice of experts only; shared experts beside them; the first blocks are dense.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_ernie4_5_moe(const Hyperparameters& h, const WeightSource& w) {
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/false);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    x = block.add(x, block.attend({q, k, v}), "attn_residual");

    const Value fed = block.experts_or_gated(block.norm(x, "ffn_norm"), {.renormalise = true});
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
