// OLMo 2 and 3 (GGUF architecture "olmo2"). Source: OLMo Team 2024, 2 OLMo 2 Furious.
//
// Norms stand behind each sub-layer instead of before it; queries and keys are normed as whole rows. OLMo 3:
// three blocks of four see a window and turn without the file's scaling.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_olmo2(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w);
  const Rotary local = model.windowed_rotary(/*neox=*/true, h.rope_freq_base);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    const std::int64_t window = block.window(h.sliding_window > 0 ? 4 : 1);
    auto [q, k, v] = block.qkv(x);
    q = block.rotate(block.norm(q, "attn_q_norm"), window > 0 ? local : rotary);
    k = block.rotate(block.norm(k, "attn_k_norm"), window > 0 ? local : rotary);
    Value attended = block.attend({q, k, v}, {.window = window});
    attended = block.norm(attended, "post_attention_norm");
    x = block.add(x, attended, "attn_residual");

    const Value fed = block.norm(block.gated(x), "post_ffw_norm");
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
