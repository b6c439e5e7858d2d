// StableLM, StableLM 2 (GGUF architecture "stablelm"). Source: Bellagente et al. 2024.
//
// LayerNorm, a part of each head turns. The 12B model norms queries and keys with weights of each head's own,
// and its attention and feed-forward stand side by side: it has no ffn_norm.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_stablelm(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w, Norm::layer);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    const Value normed = block.norm(x, "attn_norm");
    auto [q, k, v] = block.qkv(normed);
    if (w.find(block.name("attn_q_norm.weight"), {block.key_dim, block.heads})) {
      q = block.norm(q, "attn_q_norm", block.key_dim, /*own=*/true);
      k = block.norm(k, "attn_k_norm", block.key_dim, /*own=*/true);
    }
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    const Value attended = block.attend({q, k, v});
    x = block.add(x, attended, "attn_residual");

    const bool behind = block.has("ffn_norm", block.width);
    const Value fed = block.gated(behind ? block.norm(x, "ffn_norm") : block.wanted(normed));
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
