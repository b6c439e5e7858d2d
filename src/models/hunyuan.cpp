// Hunyuan, dense and mixture of experts (GGUF architectures "hunyuan-dense", "hunyuan-moe"). Source: Tencent
// Hunyuan Team 2025.
//
// Queries and keys are normed per head after they have turned; a shared expert beside the chosen ones.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_hunyuan(const Hyperparameters& h, const WeightSource& w) {
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.norm(block.rotate(q, rotary), "attn_q_norm", block.key_dim);
    k = block.norm(block.rotate(k, rotary), "attn_k_norm", block.key_dim);
    x = block.add(x, block.attend({q, k, v}), "attn_residual");

    const Value fed = block.experts_or_gated(block.norm(x, "ffn_norm"), {.renormalise = true});
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
