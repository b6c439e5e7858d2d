// Jina Embeddings v2 and its code and reranker models (GGUF architecture "jina-bert-v2"). Source: Guenther et
// al. 2023, Jina Embeddings 2.
//
// BERT without positions: scores fall with the distance to either side (ALiBi). The feed-forward is gated by
// a GELU, whose rows stand before the others in ffn_up, or in ffn_gate. The code model norms queries and
// keys, and once more behind the attention.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Activation;
using graph::Value;

graph::Graph build_jina_bert(const Hyperparameters& file, const WeightSource& w) {
  refuse_experts(file);
  Hyperparameters h = file;
  if (h.alibi_max_bias == 0) h.alibi_max_bias = 8;
  Decoder model(h, w, Norm::layer);
  Value x = model.norm(model.add_token_types(model.embed()), "token_embd_norm", h.embedding);
  for (Block& block : model.blocks()) {
    auto [q, k, v] = block.qkv(x);
    if (block.has("attn_q_norm", block.width)) q = block.norm(q, "attn_q_norm");
    if (block.has("attn_k_norm", block.width)) k = block.norm(k, "attn_k_norm");
    const Value attended = block.attend({q, k, v}), before = x;
    x = block.norm(block.add(before, attended, "attn_residual"), "attn_output_norm");
    if (block.has("attn_norm_2", block.width))
      x = block.norm(block.add(before, x, "attn_residual_2"), "attn_norm_2");

    const bool is_fused = w.size(block.name("ffn_gate.weight"), 1) == 0;
    const Value fed = is_fused ? block.gated_fused(x, Activation::gelu) : block.gated(x, Activation::gelu);
    x = block.norm(block.add(x, fed, "ffn_residual"), "layer_output_norm");
  }
  return model.vectors(x);
}

}  // namespace quipu::models
