// Gemma (GGUF architecture "gemma"). Source: Gemma Team 2024.
//
// A llama block with GELU in the gate and embeddings scaled by the root of the width. Norm weights are stored
// plus one.
#include <cmath>

#include "models/decoder.hpp"

namespace quipu::models {

using graph::Activation;
using graph::Value;

graph::Graph build_gemma(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed(std::sqrt(static_cast<float>(h.embedding)));
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    x = block.add(x, block.attend({q, k, v}), "attn_residual");

    const Value fed = block.gated(block.norm(x, "ffn_norm"), Activation::gelu_tanh);
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
