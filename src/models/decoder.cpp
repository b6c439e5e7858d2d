#include "models/decoder.hpp"

#include <cmath>
#include <map>
#include <mutex>

namespace quipu::models {

using graph::Value;

TensorView rows_of(const TensorView& weight, std::int64_t first, std::int64_t count) {
  TensorView part = weight;
  if (weight.shape[1] == 1) {  // a vector: its elements
    part.shape[0] = count;
    part.data += row_bytes(weight.dtype, static_cast<std::size_t>(first));
  } else {
    part.shape[1] = count;
    part.data += static_cast<std::size_t>(first) * weight.row_bytes();
  }
  return part;
}

TensorView constant(std::int64_t size, float value) {
  static std::mutex mutex;
  static std::map<std::pair<std::int64_t, float>, std::vector<float>> all;
  const std::lock_guard lock(mutex);
  std::vector<float>& values = all[{size, value}];
  values.resize(static_cast<std::size_t>(size), value);
  TensorView view;
  view.name = "constant";
  view.dtype = DType::f32;
  view.shape[0] = size;
  view.data = reinterpret_cast<const std::byte*>(values.data());
  return view;
}

float first_of(const TensorView& weight) {
  float value = 0;
  info(weight.dtype).decode(weight.data, &value, 1);
  return value;
}

TensorView matrix_of(const TensorView& weight, std::int64_t index) {
  TensorView part = weight;
  part.shape[2] = 1;
  part.data += static_cast<std::size_t>(index * weight.shape[1]) * weight.row_bytes();
  return part;
}

void refuse_experts(const Hyperparameters& h) {
  if (h.experts.count > 0)
    fail(ErrorCode::unsupported,
         "{}.expert_count is {}: mixture-of-experts layers are not supported yet in this architecture",
         h.architecture, h.experts.count);
}

// ---- the whole ----

Value Decoder::embed(float scale) {
  const Value x = g.at("token_embd").embed(weights.get("token_embd.weight", {hyper.embedding, hyper.vocab}));
  if (scale == 0) scale = hyper.embedding_scale;
  return scale != 0 ? g.at("embd_scale").scale(x, scale) : x;
}

Rotary Decoder::rotary(bool neox) const {
  const std::int64_t pairs = hyper.rope_dims / 2;
  if (const RopeScaling& scaling = hyper.rope_scaling; scaling.type == RopeScalingType::longrope) {
    const TensorView beyond = weights.get("rope_factors_long.weight", {pairs});
    const TensorView within = weights.get("rope_factors_short.weight", {pairs});
    return {neox, rope_frequencies(hyper, scaling.long_factors ? beyond : within)};
  }
  return {neox, rope_frequencies(hyper, weights.find("rope_freqs.weight", {pairs}))};
}

Rotary Decoder::windowed_rotary(bool neox, double base) const {
  Hyperparameters plain = hyper;
  plain.rope_freq_base = hyper.rope_freq_base_windowed > 0 ? hyper.rope_freq_base_windowed : base;
  plain.rope_dims = hyper.rope_dims_windowed;
  plain.rope_scaling.type = RopeScalingType::none;
  return {neox, rope_frequencies(plain, std::nullopt)};
}

std::vector<Block> Decoder::blocks() {
  std::vector<Block> all;
  for (std::uint32_t i = 0; i < hyper.layers; ++i) all.emplace_back(*this, i);
  return all;
}

Value Decoder::norm(Value x, const std::string& name, std::int64_t size, std::int64_t heads) {
  if (norm_kind == Norm::layer_without_weights)
    return g.at(name).layer_norm(x, constant(size, 1), std::nullopt, hyper.norm_eps);
  const TensorView weight = weights.get(name + ".weight", {size, heads});
  g.at(name);
  if (norm_kind == Norm::rms) return g.rms_norm(x, weight, hyper.norm_eps);
  return g.layer_norm(x, weight, weights.find(name + ".bias", {size, heads}), hyper.norm_eps);
}

Value Decoder::unit(Value x, const std::string& name, std::int64_t size) {
  return g.at(name).rms_norm(x, constant(size, 1), hyper.norm_eps);
}

Value Decoder::linear(Value x, const std::string& name, std::int64_t to) {
  const TensorView weight = weights.get(name + ".weight", {g.info(x).width, to});
  return g.at(name).linear(x, weight, weights.find(name + ".bias", {to}));
}

graph::Graph Decoder::finish(Value x, float scale) {
  const std::int64_t width = hyper.embedding, vocab = hyper.vocab;
  x = norm(x, prefix + "output_norm", width);
  if (hyper.vectors) return vectors(x);
  auto output = weights.find("output.weight", {width, vocab});
  if (!output) output = weights.get("token_embd.weight", {width, vocab});
  x = g.at("output").linear(x, *output, weights.find("output.bias", {vocab}));
  if (scale != 1) x = g.at("logit_scale").scale(x, scale);
  if (const float cap = hyper.final_soft_cap; cap > 0) {
    g.at("logit_cap");
    x = g.scale(g.activate(g.scale(x, 1 / cap), graph::Activation::tanh), cap);
  }
  return g.finish(x);
}

Value Decoder::add_token_types(Value x) {
  const std::int64_t count = weights.size("token_types.weight", 1);
  if (count == 0) return x;
  g.at("token_types");
  return g.add(x, g.embed_types(weights.get("token_types.weight", {hyper.embedding, count})));
}

bool Decoder::pools_all_rows() const {
  if (!hyper.vectors) return false;
  const Pooling pooling = *hyper.vectors == Pooling::rank ? hyper.head_pooling : *hyper.vectors;
  return pooling == Pooling::mean || pooling == Pooling::cls;
}

graph::Graph Decoder::vectors(Value x, graph::Activation head) {
  const bool ranks = hyper.vectors == Pooling::rank;
  const Pooling pooling = ranks ? hyper.head_pooling : hyper.vectors.value_or(Pooling::none);
  const bool is_wanted = g.info(x).rows == graph::Rows::outputs;
  g.at("pool");
  if (pooling == Pooling::mean)
    x = g.pool(x, graph::Pool::Kind::mean);
  else if (pooling == Pooling::cls)
    x = g.pool(x, graph::Pool::Kind::first);
  else if (!is_wanted)
    x = g.gather_outputs(x);
  const std::int64_t width = hyper.embedding;
  if (!ranks) {
    for (const char* name : {"dense_2", "dense_3"})
      if (const std::int64_t to = weights.size(std::string(name) + ".weight", 1); to > 0)
        x = linear(x, name, to);
    return g.finish(x);
  }
  if (const std::int64_t to = weights.size("cls.weight", 1); to > 0) {
    x = linear(x, "cls", to);
    if (to == width || weights.size("cls.output.weight", 1) > 0) x = g.at("cls_act").activate(x, head);
    if (weights.find("cls.norm.weight", {to})) x = norm(x, "cls.norm", to);
  }
  if (const std::int64_t to = weights.size("cls.output.weight", 1); to > 0) x = linear(x, "cls.output", to);
  if (hyper.labels == std::vector<std::string>{"yes", "no"}) {
    // The softmax of the two, of which the first is the score.
    g.at("cls_softmax");
    const Value yes = g.slice(x, 1, 0, 1), no = g.slice(x, 1, 1, 1);
    x = g.activate(g.add(yes, g.scale(no, -1)), graph::Activation::sigmoid);
  }
  return g.finish(x);
}

// ---- a block ----

namespace {

/// Where distances end that have a bias of their own (Raffel et al. 2019): no file says.
constexpr std::int64_t kMaxDistance = 128;

/// Head size of a block: that of windowed ones, where the file has one.
std::uint32_t own_dim(const Hyperparameters& h, std::uint32_t index, std::uint32_t windowed,
                      std::uint32_t usual) {
  return windowed > 0 && h.windowed[index] ? windowed : usual;
}

}  // namespace

Block::Block(Decoder& decoder, std::uint32_t index)
    : index(index),
      last(index + 1 == decoder.hyper.layers),
      width(decoder.hyper.embedding),
      heads(decoder.hyper.heads[index]),
      kv_heads(decoder.hyper.kv_heads[index]),
      key_dim(own_dim(decoder.hyper, index, decoder.hyper.key_dim_windowed, decoder.hyper.key_dim)),
      value_dim(own_dim(decoder.hyper, index, decoder.hyper.value_dim_windowed, decoder.hyper.value_dim)),
      hidden(decoder.hyper.feed_forward[index]),
      decoder_(decoder) {}

std::string Block::name(std::string_view part) const {
  return fmt::format("{}blk.{}.{}", decoder_.prefix, index, part);
}

graph::Builder& Block::at(std::string_view part) { return decoder_.g.at(name(part)); }

Value Block::norm(Value x, std::string_view part, std::int64_t size, bool own) {
  const std::int64_t row = decoder_.g.info(x).width;
  return decoder_.norm(x, name(part), size > 0 ? size : row, own ? row / size : 1);
}

bool Block::has(std::string_view part, std::int64_t size) const {
  return decoder_.weights.find(name(part) + ".weight", {size}).has_value();
}

Value Block::linear(Value x, std::string_view part, std::int64_t to) {
  return decoder_.linear(x, name(part), to);
}

Block::Heads Block::qkv(Value x) {
  if (decoder_.hyper.clamp_qkv > 0)
    fail(ErrorCode::unsupported, "{}.attention.clamp_kqv is {}: clamped projections are not supported yet",
         decoder_.hyper.architecture, decoder_.hyper.clamp_qkv);
  const std::int64_t q = heads * key_dim, k = kv_heads * key_dim, v = kv_heads * value_dim;
  const auto fused = decoder_.weights.find(name("attn_qkv.weight"), {width, q + k + v});
  if (!fused) {
    const Value queries = linear(x, "attn_q", q), keys = linear(x, "attn_k", k);
    return {queries, keys, linear(x, "attn_v", v)};
  }
  const auto bias = decoder_.weights.find(name("attn_qkv.bias"), {q + k + v});
  const auto part = [&](std::string_view label, std::int64_t first, std::int64_t count) {
    return at(label).linear(x, rows_of(*fused, first, count),
                            bias ? std::optional(rows_of(*bias, first, count)) : std::nullopt);
  };
  const Value queries = part("attn_qkv.q", 0, q), keys = part("attn_qkv.k", q, k);
  return {queries, keys, part("attn_qkv.v", q + k, v)};
}

Value Block::rotate(Value x, const Rotary& rotary) {
  return at("rope").rope({.x = x,
                          .heads = decoder_.g.info(x).width / key_dim,
                          .head_dim = key_dim,
                          .neox = rotary.neox,
                          .inv_freq = rotary.turns.inv_freq,
                          .magnitude = rotary.turns.magnitude});
}

Value Block::attend(const Heads& h, const AttentionStyle& style) {
  const Hyperparameters& hyper = decoder_.hyper;
  const float usual = 1.0f / std::sqrt(static_cast<float>(key_dim));
  const float scale = style.scale != 0             ? style.scale
                      : hyper.attention_scale != 0 ? hyper.attention_scale
                                                   : usual;
  const Value attended = at(style.name)
                             .attention({.q = h.q,
                                         .k = h.k,
                                         .v = h.v,
                                         .layer = static_cast<std::int32_t>(style.keys_of.value_or(index)),
                                         .heads = heads,
                                         .kv_heads = kv_heads,
                                         .head_dim = key_dim,
                                         .v_dim = value_dim,
                                         .scale = scale,
                                         .window = style.window,
                                         .soft_cap = hyper.attention_soft_cap,
                                         .sinks = decoder_.weights.find(name("attn_sinks.weight"), {heads}),
                                         .alibi_max_bias = hyper.alibi_max_bias,
                                         .causal = hyper.causal && style.reach != graph::Reach::encoded,
                                         .stored = style.keys_of.has_value(),
                                         .chunk = style.chunk,
                                         .distance_bias = style.distance_bias,
                                         .max_distance = style.distance_bias ? kMaxDistance : 0,
                                         .reach = style.reach});
  return linear(style.keeps_rows ? attended : wanted(attended), style.output, width);
}

Value Block::gated(Value x, graph::Activation activation, std::string_view kind, std::int64_t hidden_width) {
  const auto part = [&](std::string_view what) { return fmt::format("{}{}", what, kind); };
  if (hidden_width == 0) hidden_width = hidden;
  const Value gate = linear(x, part("ffn_gate"), hidden_width), up = linear(x, part("ffn_up"), hidden_width);
  return linear(at(part("ffn_glu")).glu(gate, up, activation), part("ffn_down"), width);
}

Value Block::gated_fused(Value x, graph::Activation activation) {
  const TensorView both = decoder_.weights.get(name("ffn_up.weight"), {width, 2 * hidden});
  const Value gate = at("ffn_up.gate").linear(x, rows_of(both, 0, hidden));
  const Value up = at("ffn_up.up").linear(x, rows_of(both, hidden, hidden));
  return linear(at("ffn_glu").glu(gate, up, activation), "ffn_down", width);
}

Value Block::mlp(Value x, graph::Activation activation) {
  const Value up = linear(x, "ffn_up", hidden);
  return linear(at("ffn_act").activate(up, activation), "ffn_down", width);
}

Value Block::add(Value x, Value y, std::string_view part) {
  if (decoder_.g.info(x).rows != decoder_.g.info(y).rows) x = wanted(x);
  if (const float scale = decoder_.hyper.residual_scale; scale != 0) y = at(part).scale(y, scale);
  return at(part).add(x, y);
}

std::int64_t Block::window(std::uint32_t every) const {
  const Hyperparameters& hyper = decoder_.hyper;
  const bool windowed =
      !hyper.windowed.empty() ? hyper.windowed[index] : every == 0 || index % every < every - 1;
  return windowed ? hyper.sliding_window : 0;
}

std::optional<std::uint32_t> Block::shares(std::uint32_t every) const {
  const std::uint32_t own = decoder_.hyper.layers - decoder_.hyper.shared_kv_layers;
  if (index < own) return std::nullopt;
  // Files may hold keys and values of the block's own that it has no use for (Gemma 3n): known, so not warned
  // of.
  (void)decoder_.weights.find(name("attn_k.weight"), {width, kv_heads * key_dim});
  (void)decoder_.weights.find(name("attn_v.weight"), {width, kv_heads * value_dim});
  (void)decoder_.weights.find(name("attn_k_norm.weight"), {key_dim});
  for (std::uint32_t before = own; before-- > 0;)
    if ((Block(decoder_, before).window(every) > 0) == (window(every) > 0)) return before;
  fail(ErrorCode::bad_file, "{}.attention.shared_kv_layers is {}: block {} has no block before it to share",
       decoder_.hyper.architecture, decoder_.hyper.shared_kv_layers, index);
}

Value Block::wanted(Value x) {
  if (!last || decoder_.pools_all_rows() || decoder_.g.info(x).rows == graph::Rows::outputs) return x;
  return at("outputs").gather_outputs(x);
}

}  // namespace quipu::models
