// Command R7B, Command A (GGUF architecture "cohere2"). Source: Cohere 2025, Command A.
//
// As command-r; three blocks of four see a window and turn, the others see everything and know no positions.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_cohere2(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w, Norm::layer);
  const Rotary rotary = model.rotary(/*neox=*/false);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    const std::int64_t window = block.window(4);
    const Value normed = block.norm(x, "attn_norm");
    auto [q, k, v] = block.qkv(normed);
    if (window > 0) {
      q = block.rotate(q, rotary);
      k = block.rotate(k, rotary);
    }
    const Value attended = block.attend({q, k, v}, {.window = window});
    const Value fed = block.gated(block.wanted(normed));
    x = block.add(x, block.at("branches").add(attended, fed), "residual");
  }
  return model.finish(x, h.logit_scale != 0 ? h.logit_scale : 1);
}

}  // namespace quipu::models
