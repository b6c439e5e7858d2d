// Gemma 3n, text (GGUF architecture "gemma3n"). Sources: Gemma Team 2025, Gemma 3n; Baykal et al. 2023
// (AltUp); You et al. 2025 (Spark Transformer: sparse activations).
//
// Several streams stand side by side in a row. A block predicts all of them, computes one, and corrects the
// others by what that one turned out to be. Low-rank branches (laurel) stand beside the attention. The last
// blocks have no keys and values of their own.
#include <cmath>

#include "models/per_layer.hpp"

namespace quipu::models {

using graph::Activation;
using graph::Value;

namespace {

/// The streams of a row: AltUp.
class Streams {
 public:
  explicit Streams(Decoder& model)
      : g_(model.g), model_(model), count_(model.hyper.altup_inputs), active_(model.hyper.altup_active) {}

  Value stream(Value all, std::int64_t i) const { return g_.slice(all, 1, i * width_, width_); }
  Value active(Value all) const { return stream(all, active_); }

  /// The embedding, and projections of it with its magnitude.
  Value begin(Value embedded) const {
    const Value magnitude = magnitude_of(embedded);
    const TensorView maps = model_.weights.get("altup_proj.weight", {width_, width_, count_ - 1});
    Value all = embedded;
    for (std::int64_t i = 1; i < count_; ++i) {
      const Value other = g_.at("altup_proj").linear(embedded, matrix_of(maps, i - 1));
      all = g_.concat(all, scaled_to(other, magnitude), 1);
    }
    return all;
  }
  /// The mean of the first stream and of the others projected, all of its magnitude.
  Value end(Value all) const {
    const TensorView maps = model_.weights.get("altup_unembd_proj.weight", {width_, width_, count_ - 1});
    g_.at("altup_unembd_proj");
    Value sum = stream(all, 0);
    const Value magnitude = magnitude_of(sum);
    for (std::int64_t i = 1; i < count_; ++i)
      sum = g_.add(sum, scaled_to(g_.linear(stream(all, i), matrix_of(maps, i - 1)), magnitude));
    return g_.scale(sum, 1 / static_cast<float>(count_));
  }

  Value predict(Block& block, Value all) const {
    const Value routed = route(block, active(all));
    const Value weights = block.linear(routed, "altup_predict_coef", count_ * count_);
    return g_.add(all, block.at("altup_predict").mix(all, weights, count_));
  }
  /// Each stream changes by its share of what the prediction of the active one missed; the share is the
  /// router's plus 1.
  Value correct(Block& block, Value predicted, Value computed) const {
    const Value routed = route(block, computed);
    const TensorView coef = model_.weights.get(block.name("altup_correct_coef.weight"), {count_, count_});
    const Value weights = block.at("altup_correct_coef").linear(routed, coef, constant(count_, 1));
    block.at("altup_correct");
    const Value missed = g_.add(computed, g_.scale(active(predicted), -1));
    return g_.add(predicted, g_.mix(missed, weights, 1));
  }
  /// x added to all streams but the first.
  Value add_to_others(Value all, Value x) const {
    if (count_ == 1) return all;
    Value wide = x;
    for (std::int64_t i = 2; i < count_; ++i) wide = g_.concat(wide, x, 1);
    const Value others = g_.slice(all, 1, width_, (count_ - 1) * width_);
    return g_.concat(stream(all, 0), g_.add(others, wide), 1);
  }

 private:
  static constexpr float kTiny = 1e-30f;  // keeps rows of zeros from dividing by zero

  Value route(Block& block, Value x) const {
    Value normed = block.norm(x, "altup_router_norm");
    normed = g_.scale(normed, 1 / static_cast<float>(width_));
    return g_.activate(block.linear(normed, "altup_router", count_), Activation::tanh);
  }
  /// The root mean square m of a row: the mean of x times x / m.
  Value magnitude_of(Value x) const {
    TensorView mean = constant(width_, 1 / static_cast<float>(width_));
    return g_.linear(g_.mul(x, g_.rms_norm(x, constant(width_, 1), kTiny)), mean);
  }
  Value scaled_to(Value x, Value magnitude) const {
    return g_.mul(g_.rms_norm(x, constant(width_, 1), kTiny), magnitude);
  }

  graph::Builder& g_;
  Decoder& model_;
  const std::int64_t count_, active_, width_ = model_.hyper.embedding;
};

Value feed_forward(Block& block, Value x, double deviations) {
  Value gate = block.linear(x, "ffn_gate", block.hidden);
  const Value up = block.linear(x, "ffn_up", block.hidden);
  if (std::isfinite(deviations))
    gate = block.at("ffn_sparse").gaussian_top_k(gate, static_cast<float>(deviations));
  return block.linear(block.at("ffn_glu").glu(gate, up, Activation::gelu_tanh), "ffn_down", block.width);
}

}  // namespace

graph::Graph build_gemma3n(const Hyperparameters& h, const WeightSource& w) {
  constexpr std::uint32_t kPeriod = 5;
  refuse_experts(h);
  if (h.altup_inputs == 0 || h.per_layer_width == 0)
    fail(ErrorCode::bad_file,
         "gemma3n.altup.num_inputs and gemma3n.embedding_length_per_layer_input are {} "
         "and {}, expected at least 1",
         h.altup_inputs, h.per_layer_width);
  Decoder model(h, w);
  const Rotary local = model.windowed_rotary(/*neox=*/true, 10000), global = model.rotary(/*neox=*/true);
  const Value embedded = model.embed(std::sqrt(static_cast<float>(h.embedding)));
  const PerLayerInputs inputs(model, embedded);
  const Streams streams(model);
  Value x = streams.begin(embedded);
  for (Block& block : model.blocks()) {
    Value predicted = streams.predict(block, x);
    const Value active = streams.active(predicted), normed = block.norm(active, "attn_norm");

    const std::int64_t rank = w.size(block.name("laurel_l.weight"), 1);
    Value laurel = block.linear(block.linear(normed, "laurel_l", rank), "laurel_r", block.width);
    laurel = block.add(normed, block.norm(laurel, "laurel_post_norm"), "laurel");

    const std::int64_t window = block.window(kPeriod);
    const Rotary& rotary = window > 0 ? local : global;
    const auto keys_of = block.shares(kPeriod);
    Block::Heads heads;
    if (keys_of)
      heads.q = block.linear(normed, "attn_q", block.heads * block.key_dim);
    else
      heads = block.qkv(normed);
    heads.q = block.rotate(block.norm(heads.q, "attn_q_norm", block.key_dim), rotary);
    if (!keys_of) {
      heads.k = block.rotate(block.norm(heads.k, "attn_k_norm", block.key_dim), rotary);
      heads.v = model.unit(heads.v, block.name("attn_v_norm"), block.value_dim);
    }
    Value attended = block.attend(heads, {.window = window, .scale = 1, .keys_of = keys_of});
    attended = block.add(active, block.norm(attended, "post_attention_norm"), "attn_residual");
    attended = block.add(attended, block.wanted(laurel), "attn_laurel");
    attended = block.at("attn_laurel").scale(attended, std::sqrt(0.5f));

    const double deviations = h.sparsity.empty() ? -INFINITY : h.sparsity[block.index];
    const Value fed = feed_forward(block, block.norm(attended, "ffn_norm"), deviations);
    const Value computed = block.add(attended, block.norm(fed, "post_ffw_norm"), "ffn_residual");
    x = streams.correct(block, block.wanted(predicted), computed);

    const TensorView own_scale = w.get(block.name("altup_correct_scale.weight"), {block.width});
    const Value scaled = block.at("altup_correct_scale").mul_vector(streams.active(x), own_scale);
    x = streams.add_to_others(x, inputs.through(block, scaled));
  }
  return model.finish(streams.end(x));
}

}  // namespace quipu::models
