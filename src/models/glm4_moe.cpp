// GLM-4.5, 4.6, 4.7 (GGUF architecture "glm4moe"). Source: GLM-4.5 Team 2025.
//
// A part of each head turns; queries and keys may be normed per head; DeepSeek-V3's experts behind dense
// first blocks. The file names the feed-forward's norm post_attention_norm.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_glm4_moe(const Hyperparameters& h, const WeightSource& w) {
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    if (block.has("attn_q_norm", block.key_dim)) {
      q = block.norm(q, "attn_q_norm", block.key_dim);
      k = block.norm(k, "attn_k_norm", block.key_dim);
    }
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    x = block.add(x, block.attend({q, k, v}), "attn_residual");

    const Value fed = block.experts_or_gated(
        block.norm(x, "post_attention_norm"),
        {.gating = graph::Gating::sigmoid, .renormalise = h.experts.renormalise.value_or(true)});
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
