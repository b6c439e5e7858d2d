// BERT and the encoders of its shape: RoBERTa, XLM-RoBERTa, MiniLM, BGE, E5 (GGUF architecture "bert").
// Sources: Devlin et al. 2018; Liu et al. 2019.
//
// Every token sees the whole text. Learned positions and token types are added to the embeddings, a norm
// stands behind each sum, and the feed-forward is a GELU. RoBERTa's positions begin behind those of the
// padding; the file leaves those rows out.
#include "models/decoder.hpp"

namespace quipu::models {

using graph::Activation;
using graph::Value;

graph::Graph build_bert(const Hyperparameters& h, const WeightSource& w) {
  refuse_experts(h);
  Decoder model(h, w, Norm::layer);
  Value x = model.add_token_types(model.embed());
  model.g.at("position_embd");
  x = model.g.add(x,
                  model.g.embed_positions(w.get("position_embd.weight", {h.embedding, h.trained_context})));
  x = model.norm(x, "token_embd_norm", h.embedding);
  for (Block& block : model.blocks()) {
    const Value attended = block.attend(block.qkv(x));
    x = block.norm(block.add(x, attended, "attn_residual"), "attn_output_norm");

    const Value fed = block.mlp(x, Activation::gelu);
    x = block.norm(block.add(x, fed, "ffn_residual"), "layer_output_norm");
  }
  return model.vectors(x);
}

}  // namespace quipu::models
