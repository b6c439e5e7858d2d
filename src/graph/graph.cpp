#include "graph/graph.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "graph/shape_rules.hpp"

namespace quipu::graph {
namespace {

/// What is known of an op by its kind alone.
struct Description {
  std::string_view name;
  std::vector<const Value*> inputs;
};

// One line an op.
struct Describe {
  Description operator()(const Embed&) const { return {"embed", {}}; }
  Description operator()(const EmbedPositions&) const { return {"embed_positions", {}}; }
  Description operator()(const EmbedTypes&) const { return {"embed_types", {}}; }
  Description operator()(const RmsNorm& op) const { return {"rms_norm", {&op.x}}; }
  Description operator()(const LayerNorm& op) const { return {"layer_norm", {&op.x}}; }
  Description operator()(const Linear& op) const { return {"linear", {&op.x}}; }
  Description operator()(const Rope& op) const { return {"rope", {&op.x}}; }
  Description operator()(const Attention& op) const {
    if (op.stored) return {"attention", {&op.q}};
    return {"attention", {&op.q, &op.k, &op.v}};
  }
  Description operator()(const StoreKv& op) const { return {"store_kv", {&op.k, &op.v}}; }
  Description operator()(const Glu& op) const { return {"glu", {&op.gate, &op.up}}; }
  Description operator()(const Activate& op) const { return {"activate", {&op.x}}; }
  Description operator()(const Xielu& op) const { return {"xielu", {&op.x}}; }
  Description operator()(const GaussianTopK& op) const { return {"gaussian_top_k", {&op.x}}; }
  Description operator()(const PositionTemperature&) const { return {"position_temperature", {}}; }
  Description operator()(const Add& op) const { return {"add", {&op.a, &op.b}}; }
  Description operator()(const Mul& op) const { return {"mul", {&op.a, &op.b}}; }
  Description operator()(const Scale& op) const { return {"scale", {&op.x}}; }
  Description operator()(const Mix& op) const { return {"mix", {&op.x, &op.weights}}; }
  Description operator()(const AddAdapted& op) const { return {"add_adapted", {&op.x, &op.delta}}; }
  Description operator()(const AddVector& op) const { return {"add_vector", {&op.x}}; }
  Description operator()(const MulVector& op) const { return {"mul_vector", {&op.x}}; }
  Description operator()(const Slice& op) const { return {"slice", {&op.x}}; }
  Description operator()(const Concat& op) const { return {"concat", {&op.a, &op.b}}; }
  Description operator()(const HeadLinear& op) const { return {"head_linear", {&op.x}}; }
  Description operator()(const MoeRoute& op) const { return {"moe_route", {&op.logits}}; }
  Description operator()(const MoeLinear& op) const { return {"moe_linear", {&op.x, &op.route}}; }
  Description operator()(const MoeCombine& op) const { return {"moe_combine", {&op.x, &op.route}}; }
  Description operator()(const GatherOutputs& op) const { return {"gather_outputs", {&op.x}}; }
  Description operator()(const Pool& op) const { return {"pool", {&op.x}}; }
};

}  // namespace

std::string_view op_name(const Op& op) { return std::visit(Describe{}, op).name; }

std::vector<Value> op_inputs(const Op& op) {
  std::vector<Value> values;
  for (const Value* input : std::visit(Describe{}, op).inputs) values.push_back(*input);
  return values;
}

void set_op_inputs(Op& op, std::span<const Value> inputs) {
  const std::vector<const Value*> places = std::visit(Describe{}, op).inputs;
  if (places.size() != inputs.size())
    fail(ErrorCode::internal, "{} reads {} values, not {}", op_name(op), places.size(), inputs.size());
  // The places are members of `op`, which is not const.
  for (std::size_t i = 0; i < places.size(); ++i) *const_cast<Value*>(places[i]) = inputs[i];
}

std::vector<std::vector<std::size_t>> value_users(const Graph& graph) {
  std::vector<std::vector<std::size_t>> users(graph.values.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    for (const Value input : op_inputs(graph.nodes[i].op)) {
      std::vector<std::size_t>& of_input = users[input.id];
      if (of_input.empty() || of_input.back() != i) of_input.push_back(i);
    }
  return users;
}

Builder& Builder::at(std::string name) {
  name_ = std::move(name);
  return *this;
}

Builder& Builder::of_adapter(std::int32_t adapter) {
  adapter_ = adapter;
  return *this;
}

Value Builder::push(Op op) {
  const ValueInfo shape = infer_shape(graph_, name_, op);
  const Value out{static_cast<std::uint32_t>(graph_.values.size())};
  graph_.values.push_back(shape);
  if (const auto* embed = std::get_if<Embed>(&op)) {
    graph_.token_limit = std::min(graph_.token_limit, embed->weight.rows());
  } else if (const auto* learned = std::get_if<EmbedPositions>(&op)) {
    graph_.position_limit = std::min(graph_.position_limit, learned->weight.rows());
  } else if (const auto* types = std::get_if<EmbedTypes>(&op)) {
    graph_.type_limit = std::max(graph_.type_limit, types->weight.rows());
  } else if (const auto* attention = std::get_if<Attention>(&op)) {
    if (!attention->causal && attention->reach == Reach::all) graph_.whole_sequences = true;
    if (attention->reach == Reach::encoded) graph_.reads_encoded = true;
    use_layer(attention->layer, {attention->kv_heads, attention->head_dim, attention->v_dim});
  } else if (const auto* stored = std::get_if<StoreKv>(&op)) {
    use_layer(stored->layer, {stored->kv_heads, stored->head_dim, stored->v_dim});
  } else if (const auto* adapted = std::get_if<AddAdapted>(&op)) {
    graph_.adapters = std::max(graph_.adapters, adapted->adapter + 1);
  }
  graph_.nodes.push_back({std::move(op), out, name_, adapter_});
  return out;
}

void Builder::use_layer(std::int32_t layer, const KvShape& shape) {
  graph_.kv_layers = std::max(graph_.kv_layers, layer + 1);
  graph_.kv_shapes.resize(static_cast<std::size_t>(graph_.kv_layers));
  graph_.kv_shapes[static_cast<std::size_t>(layer)] = shape;
}

Value Builder::embed(TensorView weight) { return push(Embed{std::move(weight)}); }
Value Builder::embed_positions(TensorView weight) { return push(EmbedPositions{std::move(weight)}); }

Value Builder::embed_types(TensorView weight) { return push(EmbedTypes{std::move(weight)}); }

Value Builder::rms_norm(Value x, TensorView weight, float eps) {
  return push(RmsNorm{x, std::move(weight), eps});
}

Value Builder::layer_norm(Value x, TensorView weight, std::optional<TensorView> bias, float eps) {
  return push(LayerNorm{x, std::move(weight), std::move(bias), eps});
}

Value Builder::linear(Value x, TensorView weight, std::optional<TensorView> bias) {
  return push(Linear{x, std::move(weight), std::move(bias)});
}

Value Builder::rope(Rope op) { return push(std::move(op)); }

Value Builder::attention(Attention op) { return push(std::move(op)); }

Value Builder::store_kv(StoreKv op) { return push(std::move(op)); }

Value Builder::glu(Value gate, Value up, Activation activation, float limit, float up_shift) {
  return push(Glu{gate, up, activation, limit, up_shift});
}
Value Builder::activate(Value x, Activation activation) { return push(Activate{x, activation}); }
Value Builder::xielu(Xielu op) { return push(op); }
Value Builder::gaussian_top_k(Value x, float deviations) { return push(GaussianTopK{x, deviations}); }
Value Builder::position_temperature(float scale, std::int64_t length, std::int64_t offset) {
  return push(PositionTemperature{scale, length, offset});
}
Value Builder::add(Value a, Value b) { return push(Add{a, b}); }
Value Builder::mul(Value a, Value b) { return push(Mul{a, b}); }
Value Builder::scale(Value x, float factor) { return push(Scale{x, factor}); }
Value Builder::mix(Value x, Value weights, std::int64_t parts) { return push(Mix{x, weights, parts}); }
Value Builder::add_adapted(Value x, Value delta, std::int32_t adapter, float scale) {
  return push(AddAdapted{x, delta, adapter, scale});
}
Value Builder::add_vector(Value x, TensorView vector) { return push(AddVector{x, std::move(vector)}); }
Value Builder::mul_vector(Value x, TensorView vector) { return push(MulVector{x, std::move(vector)}); }
Value Builder::slice(Value x, std::int64_t groups, std::int64_t first, std::int64_t count) {
  return push(Slice{x, groups, first, count});
}
Value Builder::concat(Value a, Value b, std::int64_t groups, bool shared) {
  return push(Concat{a, b, groups, shared});
}
Value Builder::head_linear(Value x, TensorView weight) { return push(HeadLinear{x, std::move(weight)}); }
Value Builder::moe_route(MoeRoute op) { return push(std::move(op)); }
Value Builder::moe_linear(Value x, Value route, TensorView weight, std::optional<TensorView> bias) {
  return push(MoeLinear{x, route, std::move(weight), std::move(bias)});
}
Value Builder::moe_combine(Value x, Value route) { return push(MoeCombine{x, route}); }
Value Builder::gather_outputs(Value x) { return push(GatherOutputs{x}); }

Value Builder::pool(Value x, Pool::Kind kind) {
  const Value out = push(Pool{x, kind});
  graph_.whole_sequences = true;
  return out;
}

Graph Builder::finish(Value output) {
  if (output.id >= graph_.values.size())
    fail(ErrorCode::internal, "the graph's output is value {}, but it has {} values", output.id,
         graph_.values.size());
  if (graph_.values[output.id].rows != Rows::outputs)
    fail(ErrorCode::internal,
         "the graph's output has a row per token; gather_outputs or pool must come before it");
  graph_.output = output;
  return std::exchange(graph_, Graph{});
}

}  // namespace quipu::graph
