// BLOOM (GGUF architecture "bloom"). Source: BigScience 2022.
//
// ALiBi in place of positions (Press et al. 2021), a LayerNorm on the embeddings, biases.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Activation;
using graph::Value;

graph::Graph build_bloom(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Hyperparameters biased = h;
  if (biased.alibi_max_bias == 0) biased.alibi_max_bias = 8;  // the file does not say
  Decoder model(biased, w, Norm::layer);
  Value x = model.norm(model.embed(), "token_embd_norm", h.embedding);
  for (Block& block : model.blocks()) {
    const Block::Heads heads = block.qkv(block.norm(x, "attn_norm"));
    x = block.add(x, block.attend(heads), "attn_residual");

    const Value fed = block.mlp(block.norm(x, "ffn_norm"), Activation::gelu_tanh);
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
