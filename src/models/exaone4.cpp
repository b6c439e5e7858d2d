// EXAONE 4.0 (GGUF architecture "exaone4"). Source: LG AI Research 2025.
//
// Norms stand behind each sub-layer; queries and keys are normed per head. With a window, three blocks of
// four have it and turn, the others see everything and know no positions.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_exaone4(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    const std::int64_t window = block.window(h.sliding_window > 0 ? 4 : 1);
    auto [q, k, v] = block.qkv(x);
    q = block.norm(q, "attn_q_norm", block.key_dim);
    k = block.norm(k, "attn_k_norm", block.key_dim);
    if (window > 0 || h.sliding_window == 0) {
      q = block.rotate(q, rotary);
      k = block.rotate(k, rotary);
    }
    Value attended = block.attend({q, k, v}, {.window = window});
    attended = block.norm(attended, "post_attention_norm");
    x = block.add(x, attended, "attn_residual");

    const Value fed = block.norm(block.gated(x), "post_ffw_norm");
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
