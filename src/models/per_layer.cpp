#include "models/per_layer.hpp"

#include <cmath>

namespace quipu::models {

using graph::Value;

PerLayerInputs::PerLayerInputs(Decoder& model, Value embedded) : model_(model) {
  const Hyperparameters& h = model.hyper;
  const std::int64_t own = h.per_layer_width, all = own * h.layers;
  graph::Builder& g = model.g;
  const Value by_token =
      g.at("per_layer_token_embd").embed(model.weights.get("per_layer_token_embd.weight", {all, h.vocab}));
  Value projected = model.linear(embedded, "per_layer_model_proj", all);
  projected = g.scale(projected, 1 / std::sqrt(static_cast<float>(h.embedding)));
  projected = model.norm(projected, "per_layer_proj_norm", own);
  g.at("per_layer_inputs");
  all_ = g.add(projected, g.scale(by_token, std::sqrt(static_cast<float>(own))));
  all_ = g.scale(all_, std::sqrt(0.5f));
}

Value PerLayerInputs::through(Block& block, Value x) const {
  const std::int64_t own = model_.hyper.per_layer_width;
  const Value gate = block.linear(x, "inp_gate", own);
  const Value of_block = block.wanted(block.at("inp_own").slice(all_, 1, block.index * own, own));
  const Value mixed = block.at("inp_glu").glu(gate, of_block, graph::Activation::gelu_tanh);
  return block.norm(block.linear(mixed, "proj", block.width), "post_norm");
}

}  // namespace quipu::models
