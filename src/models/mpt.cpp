// MPT (GGUF architecture "mpt"). Source: MosaicML 2023. ALiBi in place of positions, LayerNorm, no biases.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Activation;
using graph::Value;

graph::Graph build_mpt(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w, Norm::layer);
  Value x = model.embed();
  for (Block& block : model.blocks()) {
    const Block::Heads heads = block.qkv(block.norm(x, "attn_norm"));
    x = block.add(x, block.attend(heads), "attn_residual");

    const Value fed = block.mlp(block.norm(x, "ffn_norm"), Activation::gelu);
    x = block.add(x, fed, "ffn_residual");
  }
  return model.finish(x);
}

}  // namespace quipu::models
