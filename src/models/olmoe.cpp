// OLMoE (GGUF architecture "olmoe"). Source: Muennighoff et al. 2024.
//
// A mixture of many small experts; queries and keys are normed as whole rows.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_olmoe(const Hyperparameters& h, const WeightSource& w) {
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(block.norm(q, "attn_q_norm"), rotary);
    k = block.rotate(block.norm(k, "attn_k_norm"), rotary);
    x = block.add(x, block.attend({q, k, v}), "attn_residual");

    const Value fed =
        block.experts(block.norm(x, "ffn_norm"), {.renormalise = h.experts.renormalise.value_or(false)});
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
