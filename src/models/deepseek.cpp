// DeepSeekMoE 16B and Ling 1 (GGUF architectures "deepseek", "bailingmoe"). Sources: Dai et al. 2024,
// DeepSeekMoE; Ling Team 2025.
//
// A llama block with many small experts beside shared ones, the first blocks dense. DeepSeek's softmax scores
// are taken as they are, Ling's are renormalised.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_deepseek(const Hyperparameters& h, const WeightSource& w) {
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/false);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    x = block.add(x, block.attend({q, k, v}), "attn_residual");

    const Value fed = block.experts_or_gated(block.norm(x, "ffn_norm"),
                                             {.renormalise = h.experts.renormalise.value_or(false)});
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
