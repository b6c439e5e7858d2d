// dots.llm1, Ling 2 and Ring 2 (GGUF architectures "dots1", "bailingmoe2"). Sources: rednote-hilab 2025; Ling
// Team 2025.
//
// A qwen3 block with DeepSeek-V3's experts: sigmoid scores, a bias for the choice, groups of experts, shared
// experts, dense first blocks. Ling turns a part of each head.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_dots1(const Hyperparameters& h, const WeightSource& w) {
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/true);
  const bool softmax = h.experts.gating == 1;  // as a file may say
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(block.norm(q, "attn_q_norm", block.key_dim), rotary);
    k = block.rotate(block.norm(k, "attn_k_norm", block.key_dim), rotary);
    x = block.add(x, block.attend({q, k, v}), "attn_residual");

    const Value fed = block.experts_or_gated(
        block.norm(x, "ffn_norm"), {.gating = softmax ? graph::Gating::softmax : graph::Gating::sigmoid,
                                    .renormalise = h.experts.renormalise.value_or(true),
                                    .group_top = 2});
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
