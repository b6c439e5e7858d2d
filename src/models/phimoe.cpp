// Phi-3.5-MoE (GGUF architecture "phimoe"). Source: Abdin et al. 2024.
//
// A llama block with LayerNorm and biases; two experts a token, weighted by SparseMixer (Liu et al. 2024).
// The long versions turn by LongRoPE factors.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_phimoe(const Hyperparameters& h, const WeightSource& w) {
  Decoder model(h, w, Norm::layer);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    x = block.add(x, block.attend({q, k, v}, {.window = h.sliding_window}), "attn_residual");

    const Value fed = block.experts(block.norm(x, "ffn_norm"), {.gating = graph::Gating::sparse_mixer});
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
