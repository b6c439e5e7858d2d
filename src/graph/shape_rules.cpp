#include "graph/shape_rules.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.hpp"

namespace quipu::graph {
namespace {

constexpr std::int64_t kMostDistance = 65536;  // of a bias by distance: bounds its table

/// heads * dim without overflow; fails for sizes below 1.
std::int64_t product(const std::string& node, const char* what, std::int64_t heads, std::int64_t dim) {
  if (heads < 1 || dim < 1)
    fail(ErrorCode::internal, "node '{}': {} are {} heads of {} elements; both must be positive",
         printable(node), what, heads, dim);
  if (heads > std::numeric_limits<std::int64_t>::max() / dim)
    fail(ErrorCode::internal, "node '{}': {} heads of {} elements overflow", printable(node), heads, dim);
  return heads * dim;
}

class ShapeRule {
 public:
  ShapeRule(const Graph& graph, const std::string& node) : graph_(graph), node_(node) {}

  ValueInfo operator()(const Embed& op) const {
    check_matrix(op.weight);
    return {Rows::tokens, op.weight.width()};
  }

  ValueInfo operator()(const EmbedPositions& op) const {
    check_matrix(op.weight);
    return {Rows::tokens, op.weight.width()};
  }

  ValueInfo operator()(const EmbedTypes& op) const {
    check_matrix(op.weight);
    return {Rows::tokens, op.weight.width()};
  }

  ValueInfo operator()(const RmsNorm& op) const { return norm(op.x, op.weight, std::nullopt, op.eps); }
  ValueInfo operator()(const LayerNorm& op) const { return norm(op.x, op.weight, op.bias, op.eps); }

  ValueInfo operator()(const Linear& op) const {
    const ValueInfo x = info(op.x);
    check_matrix(op.weight);
    if (op.weight.width() != x.width)
      fail(ErrorCode::bad_file,
           "node '{}': weight '{}' is {}; expected rows of {} elements, the width of its input",
           printable(node_), printable(op.weight.name), shape_text(op.weight), x.width);
    if (op.bias) check_vector(*op.bias, op.weight.rows());
    return {x.rows, op.weight.rows()};
  }

  ValueInfo operator()(const Rope& op) const {
    const ValueInfo x = tokens(op.x);
    check_width("the input", x, product(node_, "its input", op.heads, op.head_dim));
    if (op.inv_freq == nullptr)
      fail(ErrorCode::internal, "node '{}': rope has no frequencies", printable(node_));
    const std::int64_t room = op.head_dim - op.first;
    if (op.first < 0 || room < 0 || op.inv_freq->size() > static_cast<std::size_t>(room / 2))
      fail(ErrorCode::internal,
           "node '{}': {} rope frequencies from element {} of heads of {} elements; at most {} fit",
           printable(node_), op.inv_freq->size(), op.first, op.head_dim, std::max<std::int64_t>(0, room / 2));
    return x;
  }

  ValueInfo operator()(const Attention& op) const {
    check_width("q", tokens(op.q), product(node_, "queries", op.heads, op.head_dim));
    product(node_, "keys", op.kv_heads, op.head_dim);
    product(node_, "values", op.kv_heads, op.v_dim);
    if (op.stored)
      check_stored(op);
    else
      check_kept(op.k, op.v, op.layer, {op.kv_heads, op.head_dim, op.v_dim});
    if (op.heads % op.kv_heads != 0)
      fail(ErrorCode::internal, "node '{}': {} heads cannot share {} key-value heads evenly",
           printable(node_), op.heads, op.kv_heads);
    if (!std::isfinite(op.scale))
      fail(ErrorCode::internal, "node '{}': the attention scale is not a number", printable(node_));
    if (op.window < 0 || !(op.soft_cap >= 0) || !(op.alibi_max_bias >= 0))
      fail(ErrorCode::internal, "node '{}': window {}, soft cap {} and ALiBi bias {} must not be negative",
           printable(node_), op.window, op.soft_cap, op.alibi_max_bias);
    if (op.chunk < 0 || (op.reach != Reach::all && (op.window != 0 || op.chunk != 0)) ||
        (op.reach == Reach::encoded && (op.causal || !op.stored)) || (op.chunk != 0 && !op.causal))
      fail(ErrorCode::internal,
           "node '{}': window {}, chunks of {}, {} and the positions of an encoder do not go together",
           printable(node_), op.window, op.chunk, op.causal ? "causal" : "not causal");
    if (op.sinks) check_vector(*op.sinks, op.heads);
    if (op.distance_bias) {
      check_matrix(*op.distance_bias);
      const std::int64_t exact = op.distance_bias->rows() / (op.causal ? 2 : 4);
      if (op.distance_bias->width() != op.heads || exact < 1 || op.max_distance <= exact ||
          op.max_distance > kMostDistance)
        fail(ErrorCode::bad_file,
             "node '{}': weight '{}' is {}, with distances up to {}; expected a bias for each of {} heads, "
             "enough rows and distances from {} to {}",
             printable(node_), printable(op.distance_bias->name), shape_text(*op.distance_bias),
             op.max_distance, op.heads, exact + 1, kMostDistance);
    }
    return {Rows::tokens, product(node_, "outputs", op.heads, op.v_dim)};
  }

  ValueInfo operator()(const StoreKv& op) const {
    check_kept(op.k, op.v, op.layer, {op.kv_heads, op.head_dim, op.v_dim});
    return {Rows::tokens, 1};
  }

  ValueInfo operator()(const Glu& op) const {
    if (!(op.limit >= 0) || !std::isfinite(op.up_shift))
      fail(ErrorCode::internal, "node '{}': limit {} and shift {} of a glu must be numbers, the limit >= 0",
           printable(node_), op.limit, op.up_shift);
    return same(op.gate, op.up);
  }
  ValueInfo operator()(const Activate& op) const { return info(op.x); }
  ValueInfo operator()(const Xielu& op) const {
    if (!std::isfinite(op.alpha_p) || !std::isfinite(op.alpha_n) || !std::isfinite(op.beta) || !(op.eps <= 0))
      fail(ErrorCode::internal, "node '{}': xielu of {}, {}, {}, {} needs numbers, the last at most 0",
           printable(node_), op.alpha_p, op.alpha_n, op.beta, op.eps);
    return info(op.x);
  }
  ValueInfo operator()(const GaussianTopK& op) const {
    if (!std::isfinite(op.deviations))
      fail(ErrorCode::internal, "node '{}': the number of deviations is not a number", printable(node_));
    return info(op.x);
  }
  ValueInfo operator()(const PositionTemperature& op) const {
    if (!std::isfinite(op.scale) || op.length < 1 || op.offset < 0)
      fail(ErrorCode::internal,
           "node '{}': a temperature of {} over {} positions needs a number and a length", printable(node_),
           op.scale, op.length);
    return {Rows::tokens, 1};
  }
  ValueInfo operator()(const Add& op) const { return same(op.a, op.b); }
  ValueInfo operator()(const Mul& op) const {
    const ValueInfo a = info(op.a), b = info(op.b);
    return a.rows == b.rows && b.width == 1 ? a : same(op.a, op.b);
  }
  ValueInfo operator()(const Scale& op) const { return info(op.x); }
  ValueInfo operator()(const Mix& op) const {
    const ValueInfo x = info(op.x), weights = info(op.weights);
    if (x.rows != weights.rows)
      fail(ErrorCode::internal, "node '{}' mixes rows of tokens and of outputs", printable(node_));
    const std::int64_t part = part_width("the input", x, op.parts);
    return {x.rows, product(node_, "its output", part_width("the weights", weights, op.parts), part)};
  }
  ValueInfo operator()(const AddAdapted& op) const {
    if (op.adapter < 0 || op.adapter >= kMaxAdapters || !std::isfinite(op.scale))
      fail(ErrorCode::internal, "node '{}': adapter {} with a scale of {}; expected 0 to {} and a number",
           printable(node_), op.adapter, op.scale, kMaxAdapters - 1);
    return same(op.x, op.delta);
  }
  ValueInfo operator()(const AddVector& op) const {
    check_vector(op.vector, info(op.x).width);
    return info(op.x);
  }
  ValueInfo operator()(const MulVector& op) const {
    check_vector(op.vector, info(op.x).width);
    return info(op.x);
  }
  ValueInfo operator()(const Slice& op) const {
    const ValueInfo x = info(op.x);
    const std::int64_t part = part_width("the input", x, op.groups);
    if (op.first < 0 || op.count < 1 || op.first > part - op.count)
      fail(ErrorCode::internal, "node '{}': elements {} to {} of parts of {}", printable(node_), op.first,
           op.first + op.count, part);
    return {x.rows, op.groups * op.count};
  }

  ValueInfo operator()(const Concat& op) const {
    const ValueInfo a = info(op.a), b = info(op.b);
    if (a.rows != b.rows)
      fail(ErrorCode::internal, "node '{}' joins rows of tokens and of outputs", printable(node_));
    part_width("a", a, op.groups);
    if (op.shared) return {a.rows, a.width + product(node_, "its second input", op.groups, b.width)};
    part_width("b", b, op.groups);
    return {a.rows, a.width + b.width};
  }

  ValueInfo operator()(const HeadLinear& op) const {
    const ValueInfo x = info(op.x);
    check_matrices(op.weight);
    check_width("the input", x, product(node_, "its input", op.weight.shape[2], op.weight.shape[0]));
    return {x.rows, product(node_, "its output", op.weight.shape[2], op.weight.shape[1])};
  }

  ValueInfo operator()(const MoeRoute& op) const {
    const ValueInfo x = info(op.logits);
    if (op.used < 1 || op.used > x.width || x.width > kMaxExperts)
      fail(ErrorCode::internal, "node '{}': {} of {} experts cannot be chosen (at most {})", printable(node_),
           op.used, x.width, kMaxExperts);
    if (op.groups < 1 || x.width % op.groups != 0 || op.groups_used < 1 || op.groups_used > op.groups ||
        op.group_top < 1 || op.group_top > std::min<std::int64_t>(16, x.width / op.groups) ||
        op.groups_used * (x.width / op.groups) < op.used)
      fail(ErrorCode::internal, "node '{}': {} of {} groups (by their {} best) do not give {} of {} experts",
           printable(node_), op.groups_used, op.groups, op.group_top, op.used, x.width);
    if (!std::isfinite(op.scale))
      fail(ErrorCode::internal, "node '{}': the scale is not a number", printable(node_));
    if (op.bias) check_vector(*op.bias, x.width);
    if (op.expert_scale) check_vector(*op.expert_scale, x.width);
    return {x.rows, 2 * op.used};
  }

  ValueInfo operator()(const MoeLinear& op) const {
    const ValueInfo x = info(op.x);
    check_matrices(op.weight);
    const std::int64_t used = route_used(op.route, x.rows, op.weight.shape[2]);
    if (x.width != op.weight.width()) check_width("the input", x, used * op.weight.width());
    if (op.bias) {
      const TensorView& bias = *op.bias;
      if (bias.shape[0] != op.weight.shape[1] || bias.shape[1] != op.weight.shape[2] || bias.shape[2] != 1 ||
          bias.shape[3] != 1)
        fail(ErrorCode::bad_file, "node '{}': weight '{}' is {}; expected a row of {} for each of {} experts",
             printable(node_), printable(bias.name), shape_text(bias), op.weight.shape[1],
             op.weight.shape[2]);
      check_dtype(bias);
    }
    return {x.rows, product(node_, "its output", used, op.weight.shape[1])};
  }

  ValueInfo operator()(const MoeCombine& op) const {
    const ValueInfo x = info(op.x);
    return {x.rows, part_width("the input", x, route_used(op.route, x.rows, 0))};
  }

  ValueInfo operator()(const GatherOutputs& op) const { return {Rows::outputs, tokens(op.x).width}; }
  ValueInfo operator()(const Pool& op) const { return {Rows::outputs, tokens(op.x).width}; }

 private:
  /// The layer's shape so far; null before its first use.
  const KvShape* layer_shape(std::int32_t layer) const {
    if (layer < 0 || layer == std::numeric_limits<std::int32_t>::max())
      fail(ErrorCode::internal, "node '{}': cache layer {} is out of range", printable(node_), layer);
    if (layer >= graph_.kv_layers) return nullptr;
    const KvShape& shape = graph_.kv_shapes[static_cast<std::size_t>(layer)];
    return shape.kv_heads != 0 ? &shape : nullptr;
  }

  /// Keys and values that a node stores.
  void check_kept(Value k, Value v, std::int32_t layer, const KvShape& shape) const {
    check_width("k", tokens(k), product(node_, "keys", shape.kv_heads, shape.key_dim));
    check_width("v", tokens(v), product(node_, "values", shape.kv_heads, shape.value_dim));
    if (layer_shape(layer) != nullptr)
      fail(ErrorCode::internal, "node '{}': cache layer {} already belongs to another attention op",
           printable(node_), layer);
  }

  /// Keys and values that another node has stored.
  void check_stored(const Attention& op) const {
    const KvShape* shape = layer_shape(op.layer);
    const KvShape wanted{op.kv_heads, op.head_dim, op.v_dim};
    if (shape == nullptr ? op.reach != Reach::encoded : *shape != wanted)
      fail(ErrorCode::internal, "node '{}': cache layer {} does not hold {} heads of {} and {} elements",
           printable(node_), op.layer, op.kv_heads, op.head_dim, op.v_dim);
  }

  ValueInfo info(Value v) const {
    if (v.id >= graph_.values.size())
      fail(ErrorCode::internal, "node '{}' reads value {}, but the graph has {} values", printable(node_),
           v.id, graph_.values.size());
    return graph_.values[v.id];
  }

  ValueInfo tokens(Value v) const {
    const ValueInfo value = info(v);
    if (value.rows != Rows::tokens)
      fail(ErrorCode::internal, "node '{}' needs a row per token, but its input has a row per output",
           printable(node_));
    return value;
  }

  ValueInfo same(Value a, Value b) const {
    const ValueInfo left = info(a), right = info(b);
    if (left.rows != right.rows || left.width != right.width)
      fail(ErrorCode::internal, "node '{}' combines rows of {} and of {} elements{}", printable(node_),
           left.width, right.width, left.rows != right.rows ? ", one per token and one per output" : "");
    return left;
  }

  void check_width(const char* what, const ValueInfo& value, std::int64_t expected) const {
    if (value.width != expected)
      fail(ErrorCode::internal, "node '{}': {} has rows of {} elements; expected {}", printable(node_), what,
           value.width, expected);
  }

  ValueInfo norm(Value v, const TensorView& weight, const std::optional<TensorView>& bias, float eps) const {
    const ValueInfo x = info(v);
    const std::int64_t group = weight.width();
    if (weight.shape[1] == 1)
      check_vector(weight);
    else
      check_matrix(weight);
    if (x.width % group != 0 || (weight.shape[1] != 1 && weight.elements() != x.width))
      fail(ErrorCode::bad_file,
           "node '{}': weight '{}' is {}; expected a vector of a divisor of the row width {}, or one for "
           "each part",
           printable(node_), printable(weight.name), shape_text(weight), x.width);
    if (bias) {
      if (bias->shape != weight.shape)
        fail(ErrorCode::bad_file, "node '{}': weight '{}' is {}; expected {}, the shape of '{}'",
             printable(node_), printable(bias->name), shape_text(*bias), shape_text(weight),
             printable(weight.name));
      check_dtype(*bias);
    }
    check_eps(eps);
    return x;
  }

  std::int64_t part_width(const char* what, const ValueInfo& value, std::int64_t parts) const {
    if (parts < 1 || value.width % parts != 0)
      fail(ErrorCode::internal, "node '{}': {} has rows of {} elements, which are not {} equal parts",
           printable(node_), what, value.width, parts);
    return value.width / parts;
  }

  /// Experts a row of `route` names; `experts` (0: any) is how many there are to choose from.
  std::int64_t route_used(Value route, Rows rows, std::int64_t experts) const {
    for (const Node& node : graph_.nodes) {
      const auto* op = std::get_if<MoeRoute>(&node.op);
      if (op == nullptr || node.out != route) continue;
      const ValueInfo logits = graph_.value(op->logits);
      if (logits.rows != rows)
        fail(ErrorCode::internal, "node '{}' routes rows of tokens and of outputs", printable(node_));
      if (experts != 0 && experts != logits.width)
        fail(ErrorCode::bad_file, "node '{}': there are {} experts, but the router chooses among {}",
             printable(node_), experts, logits.width);
      return op->used;
    }
    fail(ErrorCode::internal, "node '{}' needs the result of a moe_route", printable(node_));
  }

  void check_eps(float eps) const {
    if (!std::isfinite(eps) || eps < 0)
      fail(ErrorCode::internal, "node '{}': epsilon {} is not a number >= 0", printable(node_), eps);
  }

  void check_dtype(const TensorView& weight) const {
    const DTypeInfo& dtype = quipu::info(weight.dtype);
    if (dtype.is_integer)
      fail(ErrorCode::bad_file,
           "node '{}': weight '{}' has integer type {}; expected a float or quantised type", printable(node_),
           printable(weight.name), dtype.name);
    if (dtype.decode == nullptr)
      fail(ErrorCode::unsupported, "node '{}': weight '{}' has type {}, which cannot be computed with yet",
           printable(node_), printable(weight.name), dtype.name);
    if (weight.width() % dtype.block_size != 0)
      fail(ErrorCode::bad_file, "node '{}': weight '{}' has rows of {} elements; {} needs a multiple of {}",
           printable(node_), printable(weight.name), weight.width(), dtype.name, dtype.block_size);
    if (weight.data == nullptr)
      fail(ErrorCode::internal, "node '{}': weight '{}' has no data", printable(node_),
           printable(weight.name));
  }

  void check_matrix(const TensorView& weight) const {
    if (weight.shape[0] < 1 || weight.shape[1] < 1 || weight.shape[2] != 1 || weight.shape[3] != 1)
      fail(ErrorCode::bad_file, "node '{}': weight '{}' is {}; expected a matrix", printable(node_),
           printable(weight.name), shape_text(weight));
    check_dtype(weight);
  }

  void check_matrices(const TensorView& weight) const {
    if (weight.shape[0] < 1 || weight.shape[1] < 1 || weight.shape[2] < 1 || weight.shape[3] != 1)
      fail(ErrorCode::bad_file, "node '{}': weight '{}' is {}; expected a matrix for each of several",
           printable(node_), printable(weight.name), shape_text(weight));
    check_dtype(weight);
  }

  void check_vector(const TensorView& weight, std::int64_t expected = 0) const {
    if (weight.shape[0] < 1 || weight.rows() != 1 || (expected != 0 && weight.shape[0] != expected))
      fail(ErrorCode::bad_file, "node '{}': weight '{}' is {}; expected a vector{}", printable(node_),
           printable(weight.name), shape_text(weight),
           expected != 0 ? fmt::format(" of {} elements", expected) : std::string());
    check_dtype(weight);
  }

  const Graph& graph_;
  const std::string& node_;
};

}  // namespace

ValueInfo infer_shape(const Graph& graph, const std::string& node, const Op& op) {
  return std::visit(ShapeRule(graph, node), op);
}

}  // namespace quipu::graph
