// OLMo 1 (GGUF architecture "olmo"). Source: Groeneveld et al. 2024.
//
// A llama block whose LayerNorms have neither weights nor biases.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_olmo(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w, Norm::layer_without_weights);
  const Rotary rotary = model.rotary(/*neox=*/false);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    x = block.add(x, block.attend({q, k, v}), "attn_residual");

    const Value fed = block.gated(block.norm(x, "ffn_norm"));
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
