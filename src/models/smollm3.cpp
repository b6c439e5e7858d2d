// SmolLM3 (GGUF architecture "smollm3"). Source: Bakouch et al. 2025.
//
// A llama block; every fourth one knows no positions (NoPE, Kazemnejad et al. 2023).
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_smollm3(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/false);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    if ((block.index + 1) % 4 != 0) {
      q = block.rotate(q, rotary);
      k = block.rotate(k, rotary);
    }
    x = block.add(x, block.attend({q, k, v}), "attn_residual");

    const Value fed = block.gated(block.norm(x, "ffn_norm"));
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
