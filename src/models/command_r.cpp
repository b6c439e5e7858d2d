// Command-R (GGUF architecture "command-r"). Source: Cohere 2024.
//
// Attention and feed-forward stand side by side behind one LayerNorm without bias; logits are scaled.
// Command-R+ norms queries and keys, with weights of each head's own.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_command_r(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w, Norm::layer);
  const Rotary rotary = model.rotary(/*neox=*/false);
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
    const Value fed = block.gated(block.wanted(normed));
    x = block.add(x, block.at("branches").add(attended, fed), "residual");
  }
  return model.finish(x, h.logit_scale != 0 ? h.logit_scale : 1);
}

}  // namespace quipu::models
