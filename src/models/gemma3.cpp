// Gemma 3, text (GGUF architecture "gemma3"). Source: Gemma Team 2025, Gemma 3.
//
// As Gemma 2 without soft caps on scores: queries and keys are normed per head instead. Five blocks of six
// see a window and turn with a base of their own, unscaled. The 27B model scales scores by width / heads,
// which the file does not say.
#include <cmath>

#include "models/decoder.hpp"

namespace quipu::models {

using graph::Activation;
using graph::Value;

graph::Graph build_gemma3(const Hyperparameters& h, const WeightSource& w) {
  constexpr std::uint32_t kBlocks27B = 62;
  refuse_experts(h);
  Decoder model(h, w);
  const float root =
      std::sqrt(static_cast<float>(h.layers == kBlocks27B ? h.embedding / h.heads[0] : h.key_dim));
  const Rotary local = model.windowed_rotary(/*neox=*/true, 10000);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed(std::sqrt(static_cast<float>(h.embedding)));
  for (Block& block : model.blocks()) {
    const std::int64_t window = block.window(6);
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(block.norm(q, "attn_q_norm", block.key_dim), window > 0 ? local : rotary);
    k = block.rotate(block.norm(k, "attn_k_norm", block.key_dim), window > 0 ? local : rotary);
    Value attended = block.attend({q, k, v}, {.window = window, .scale = 1.0f / root});
    attended = block.norm(attended, "post_attention_norm");
    x = block.add(x, attended, "attn_residual");

    Value fed = block.gated(block.norm(x, "ffn_norm"), Activation::gelu_tanh);
    fed = block.norm(fed, "post_ffw_norm");
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
