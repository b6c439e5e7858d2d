// The llama architecture: Llama 2 and 3.x, Mistral, Mixtral, SmolLM2, InternLM2, ERNIE 4.5 and their kin
// (GGUF architectures "llama", "internlm2", "ernie4_5").
//
// Touvron et al. 2023: pre-norm decoder with RMSNorm, rotary positions, grouped-query attention and a SwiGLU
// feed-forward. Variants are told apart by what the file holds: biases, an output matrix of its own or the
// embedding's, per-pair rotary factors (Llama 3.1), a sliding window (Mistral 7B v0.1), experts (Mixtral,
// Jiang et al. 2024).
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_llama(const Hyperparameters& h, const WeightSource& w) {
  Decoder model(h, w);
  const Rotary rotary = model.rotary(/*neox=*/false);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(block.norm(x, "attn_norm"));
    q = block.rotate(q, rotary);
    k = block.rotate(k, rotary);
    const Value attended = block.attend({q, k, v}, {.window = h.sliding_window});
    x = block.add(x, attended, "attn_residual");

    const Value fed = block.experts_or_gated(block.norm(x, "ffn_norm"), {.renormalise = true});
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
