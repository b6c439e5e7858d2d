// Phi-1, 1.5 and 2 (GGUF architecture "phi2"). Source: Li et al. 2023, Textbooks Are All You Need II.
//
// Attention and feed-forward stand side by side behind one LayerNorm; a part of each head turns; biases
// everywhere.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Activation;
using graph::Value;

graph::Graph build_phi2(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w, Norm::layer);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    const Value normed = block.norm(x, "attn_norm");
    auto [q, k, v] = block.qkv(normed);
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    const Value attended = block.attend({q, k, v});
    const Value fed = block.mlp(block.wanted(normed), Activation::gelu_tanh);
    x = block.add(x, block.at("branches").add(attended, fed), "residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
