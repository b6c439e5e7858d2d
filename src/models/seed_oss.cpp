// Seed-OSS (GGUF architecture "seed_oss"). Source: ByteDance Seed Team 2025.
//
// A qwen2 block; the file names the feed-forward's norm post_attention_norm.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_seed_oss(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    x = block.add(x, block.attend({q, k, v}), "attn_residual");

    const Value fed = block.gated(block.norm(x, "post_attention_norm"));
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
