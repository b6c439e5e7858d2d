// Gemma 2 (GGUF architecture "gemma2"). Source: Gemma Team 2024, Gemma 2.
//
// Every sub-layer is normed before and after; every other block sees a window; scores and logits are
// soft-capped. The largest model scales its scores by width / heads instead of the head size, which the file
// does not say.
#include <cmath>

#include "models/decoder.hpp"

namespace quipu::models {

using graph::Activation;
using graph::Value;

graph::Graph build_gemma2(const Hyperparameters& h, const WeightSource& w) {
  constexpr std::uint32_t kBlocks27B = 46;
  refuse_experts(h);
  Decoder model(h, w);
  const float root =
      std::sqrt(static_cast<float>(h.layers == kBlocks27B ? h.embedding / h.heads[0] : h.key_dim));
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed(std::sqrt(static_cast<float>(h.embedding)));
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    Value attended = block.attend({q, k, v}, {.window = block.window(2), .scale = 1.0f / root});
    attended = block.norm(attended, "post_attention_norm");
    x = block.add(x, attended, "attn_residual");

    Value fed = block.gated(block.norm(x, "ffn_norm"), Activation::gelu_tanh);
    fed = block.norm(fed, "post_ffw_norm");
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
