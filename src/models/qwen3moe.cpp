// Qwen3, mixture of experts (GGUF architecture "qwen3moe"). Source: Yang et al. 2025, Qwen3 Technical Report.
//
// A qwen3 block with experts, none shared; the chosen weights are renormalised.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_qwen3moe(const Hyperparameters& h, const WeightSource& w) {
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(block.norm(q, "attn_q_norm", block.key_dim), rotary);
    k = block.rotate(block.norm(k, "attn_k_norm", block.key_dim), rotary);
    x = block.add(x, block.attend({q, k, v}), "attn_residual");

    const Value fed =
        block.experts(block.norm(x, "ffn_norm"), {.renormalise = h.experts.renormalise.value_or(true)});
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
