// Qwen1.5-MoE, Qwen2-57B-A14B (GGUF architecture "qwen2moe"). Source: Yang et al. 2024, Qwen2 Technical
// Report.
//
// A qwen2 block whose feed-forward is a mixture of experts beside a shared one, which each token lets through
// by a sigmoid of its own.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Activation;
using graph::Value;

graph::Graph build_qwen2moe(const Hyperparameters& h, const WeightSource& w) {
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    x = block.add(x, block.attend({q, k, v}), "attn_residual");

    const Value fed =
        block.experts(block.norm(x, "ffn_norm"), {.renormalise = h.experts.renormalise.value_or(false)});
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
