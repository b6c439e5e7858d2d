// Embeddings that blocks have of their own (Gemma 3n, Gemma 4). Source: Gemma Team 2025 (Gemma 3n, per-layer
// embeddings).
#pragma once

#include "models/decoder.hpp"

namespace quipu::models {

class PerLayerInputs {
 public:
  /// per_layer_token_embd, and per_layer_model_proj of the scaled embedding, normed: half of each block's.
  PerLayerInputs(Decoder& model, graph::Value embedded);
  /// proj(gelu(inp_gate(x)) * what the block has of its own), normed by post_norm. In the last block of the
  /// wanted rows only.
  graph::Value through(Block& block, graph::Value x) const;

 private:
  Decoder& model_;
  graph::Value all_;  ///< [layers * per_layer_width]
};

}  // namespace quipu::models
