// dots.llm1 (GGUF architecture "dots1"). Source: rednote-hilab 2025.
//
// A qwen3 block with DeepSeek-V3's experts: sigmoid scores, a bias for the choice, shared experts, dense
// first blocks.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_dots1(const Hyperparameters& h, const WeightSource& w) {
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(block.norm(q, "attn_q_norm", block.key_dim), rotary);
    k = block.rotate(block.norm(k, "attn_k_norm", block.key_dim), rotary);
    x = block.add(x, block.attend({q, k, v}), "attn_residual");

    const Value fed = block.experts_or_gated(
        block.norm(x, "ffn_norm"),
        {.gating = graph::Gating::sigmoid, .renormalise = h.experts.renormalise.value_or(true)});
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
