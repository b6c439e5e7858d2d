// GPT-J (GGUF architecture "gptj"). Source: Wang & Komatsuzaki 2021.
//
// Attention and feed-forward stand side by side behind one LayerNorm; the first part of each head turns, in
// neighbouring pairs; the feed-forward and the logits have biases.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Activation;
using graph::Value;

graph::Graph build_gptj(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w, Norm::layer);
  const Rotary rotary = model.rotary(/*neox=*/false);
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
