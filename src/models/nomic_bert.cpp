// Nomic Embed (GGUF architecture "nomic-bert"). Source: Nussbaum et al. 2024, Nomic Embed.
//
// BERT whose queries and keys turn with their position, with a gated feed-forward and no biases.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Value;

graph::Graph build_nomic_bert(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w, Norm::layer);
  const Rotary rotary = model.rotary(/*neox=*/true);
  Value x = model.norm(model.add_token_types(model.embed()), "token_embd_norm", h.embedding);
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(x);
    const Value attended = block.attend({block.rotate(q, rotary), block.rotate(k, rotary), v});
    x = block.norm(block.add(x, attended, "attn_residual"), "attn_output_norm");

    const Value fed = block.gated(x);
    x = block.norm(block.add(x, fed, "ffn_residual"), "layer_output_norm");
  }
  return model.vectors(x);
}

}  // namespace quipu::models
