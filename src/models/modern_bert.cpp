// ModernBERT (GGUF architecture "modern-bert"). Source: Warner et al. 2024, Smarter, Better, Faster, Longer.
//
// Norms before attention and feed-forward, but for the first attention, which the norm of the embeddings
// serves. The first block of every three sees the whole text; the others see a window to both sides and turn
// with a base of their own. The feed-forward is gated by a GELU.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Activation;
using graph::Value;

graph::Graph build_modern_bert(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w, Norm::layer);
  const Rotary rotary = model.rotary(/*neox=*/true);
  const Rotary local = model.windowed_rotary(/*neox=*/true, h.rope_freq_base);
  const std::uint32_t period = h.window_period > 0 ? h.window_period : 3;
  const Activation gate = h.activation == "silu" ? Activation::silu : Activation::gelu;
  Value x = model.norm(model.embed(), "token_embd_norm", h.embedding);
  for (Block& block : model.blocks()) {
    const bool sees_all = block.index % period == 0;
    const Value normed = block.has("attn_norm", block.width) ? block.norm(x, "attn_norm") : x;
    auto [q, k, v] = block.qkv(normed);
    q = block.rotate(q, sees_all ? rotary : local);
    k = block.rotate(k, sees_all ? rotary : local);
    const Value attended = block.attend({q, k, v}, {.window = sees_all ? 0 : std::int64_t{h.sliding_window}});
    x = block.add(x, attended, "attn_residual");

    const Value fed = block.gated_fused(block.norm(x, "ffn_norm"), gate);
    x = block.add(x, fed, "ffn_residual");
  }
  return model.vectors(model.norm(x, "output_norm", h.embedding), Activation::gelu);
}

}  // namespace quipu::models
