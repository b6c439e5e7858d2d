// Falcon (GGUF architecture "falcon"). Source: Almazrouei et al. 2023.
//
// Attention and feed-forward stand side by side behind one LayerNorm, or (40B) each behind one of its own.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Activation;
using graph::Value;

graph::Graph build_falcon(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w, Norm::layer);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    const Value normed = block.norm(x, "attn_norm");
    const bool two = block.has("attn_norm_2", block.width);
    auto [q, k, v] = block.qkv(two ? block.norm(x, "attn_norm_2") : normed);
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    const Value attended = block.attend({q, k, v});
    const Value fed = block.mlp(block.wanted(normed), Activation::gelu);
    x = block.add(x, block.at("branches").add(attended, fed), "residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
