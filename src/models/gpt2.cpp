// GPT-2 and StarCoder (GGUF architectures "gpt2", "starcoder"). Sources: Radford et al. 2019; Li et al. 2023.
//
// Learned positions are added to the embeddings; LayerNorm, biases, a GELU feed-forward. StarCoder's heads
// share one key and value.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Activation;
using graph::Value;

graph::Graph build_gpt2(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w, Norm::layer);
  Value x = model.embed();
  model.g.at("position_embd");
  x = model.g.add(x,
                  model.g.embed_positions(w.get("position_embd.weight", {h.embedding, h.trained_context})));
  for (Block& block : model.blocks()) {
    const Block::Heads heads = block.qkv(block.norm(x, "attn_norm"));
    x = block.add(x, block.attend(heads), "attn_residual");

    const Value fed = block.mlp(block.norm(x, "ffn_norm"), Activation::gelu_tanh);
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
