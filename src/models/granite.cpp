// Granite 3.x, dense and mixture of experts; MiniCPM (GGUF architectures "granite", "granitemoe", "minicpm").
// Sources: IBM Granite Team 2024; Hu et al. 2024.
//
// A llama block with four factors of its own: of embeddings, attention scores, residual branches and logits
// (which it divides). The mixture may have a shared expert.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_granite(const Hyperparameters& h, const WeightSource& w) {
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
  return model.finish(x, h.logit_scale != 0 ? 1 / h.logit_scale : 1);
}

}  // namespace quipu::models
