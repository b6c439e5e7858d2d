// GPT-NeoX, Pythia (GGUF architecture "gptneox"). Sources: Black et al. 2022; Biderman et al. 2023.
//
// Attention and feed-forward stand side by side, each behind a LayerNorm of its own (or one after the other,
// if the file says so); a part of each head turns.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Activation;
using graph::Value;

graph::Graph build_gptneox(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w, Norm::layer);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    const Value attended = block.attend({q, k, v});
    const Value sum = block.add(x, attended, "attn_residual");
    const Value before = h.parallel_residual ? block.wanted(x) : sum;
    const Value fed = block.mlp(block.norm(before, "ffn_norm"), Activation::gelu);
    x = block.add(sum, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
