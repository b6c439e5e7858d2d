// Nemotron-4, Minitron; Jais 2 (GGUF architectures "nemotron", "jais2"). Sources: Parmar et al. 2024; MBZUAI
// 2025.
//
// LayerNorm (Nemotron stores its weights plus one), a part of each head may turn, a squared-ReLU
// feed-forward.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Activation;
using graph::Value;

graph::Graph build_nemotron(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w, Norm::layer);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    x = block.add(x, block.attend({q, k, v}), "attn_residual");

    const Value fed = block.mlp(block.norm(x, "ffn_norm"), Activation::relu_squared);
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
