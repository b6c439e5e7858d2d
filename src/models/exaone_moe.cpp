// K-EXAONE (GGUF architecture "exaone-moe"). Source: LG AI Research 2025.
//
// Queries and keys are normed per head; blocks with a window turn, the others know no positions;
// DeepSeek-V3's experts behind dense first blocks.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_exaone_moe(const Hyperparameters& h, const WeightSource& w) {
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    const std::int64_t window = block.window(4);
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.norm(q, "attn_q_norm", block.key_dim);
    k = block.norm(k, "attn_k_norm", block.key_dim);
    if (window > 0) {
      q = block.rotate(q, rotary);
      k = block.rotate(k, rotary);
    }
    x = block.add(x, block.attend({q, k, v}, {.window = window}), "attn_residual");

    const Value fed = block.experts_or_gated(block.norm(x, "ffn_norm"),
                                             {.gating = graph::Gating::sigmoid,
                                              .renormalise = h.experts.renormalise.value_or(true),
                                              .group_top = 2});
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
