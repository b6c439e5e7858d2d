#include "graph/shape_rules.hpp"

#include <cmath>
#include <limits>

#include "core/error.hpp"

namespace quipu::graph {
namespace {

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

  ValueInfo operator()(const RmsNorm& op) const {
    const ValueInfo x = info(op.x);
    check_vector(op.weight);
    if (x.width % op.weight.width() != 0)
      fail(ErrorCode::bad_file,
           "node '{}': weight '{}' has {} elements; expected a divisor of the row width {}", printable(node_),
           printable(op.weight.name), op.weight.width(), x.width);
    check_eps(op.eps);
    return x;
  }

  ValueInfo operator()(const LayerNorm& op) const {
    const ValueInfo x = info(op.x);
    check_vector(op.weight, x.width);
    if (op.bias) check_vector(*op.bias, x.width);
    check_eps(op.eps);
    return x;
  }

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
    if (op.inv_freq->size() > static_cast<std::size_t>(op.head_dim / 2))
      fail(ErrorCode::internal, "node '{}': {} rope frequencies for heads of {} elements; at most {} fit",
           printable(node_), op.inv_freq->size(), op.head_dim, op.head_dim / 2);
    return x;
  }

  ValueInfo operator()(const Attention& op) const {
    check_width("q", tokens(op.q), product(node_, "queries", op.heads, op.head_dim));
    check_width("k", tokens(op.k), product(node_, "keys", op.kv_heads, op.head_dim));
    check_width("v", tokens(op.v), product(node_, "values", op.kv_heads, op.v_dim));
    if (op.heads % op.kv_heads != 0)
      fail(ErrorCode::internal, "node '{}': {} heads cannot share {} key-value heads evenly",
           printable(node_), op.heads, op.kv_heads);
    if (op.layer < 0 || op.layer == std::numeric_limits<std::int32_t>::max())
      fail(ErrorCode::internal, "node '{}': cache layer {} is out of range", printable(node_), op.layer);
    if (op.layer < graph_.kv_layers && graph_.kv_shapes[static_cast<std::size_t>(op.layer)].kv_heads != 0)
      fail(ErrorCode::internal, "node '{}': cache layer {} already belongs to another attention op",
           printable(node_), op.layer);
    if (!std::isfinite(op.scale))
      fail(ErrorCode::internal, "node '{}': the attention scale is not a number", printable(node_));
    if (op.window < 0 || !(op.soft_cap >= 0) || !(op.alibi_max_bias >= 0))
      fail(ErrorCode::internal, "node '{}': window {}, soft cap {} and ALiBi bias {} must not be negative",
           printable(node_), op.window, op.soft_cap, op.alibi_max_bias);
    if (op.sinks) check_vector(*op.sinks, op.heads);
    return {Rows::tokens, product(node_, "outputs", op.heads, op.v_dim)};
  }

  ValueInfo operator()(const Glu& op) const { return same(op.gate, op.up); }
  ValueInfo operator()(const Activate& op) const { return info(op.x); }
  ValueInfo operator()(const Add& op) const { return same(op.a, op.b); }
  ValueInfo operator()(const Mul& op) const { return same(op.a, op.b); }
  ValueInfo operator()(const Scale& op) const { return info(op.x); }
  ValueInfo operator()(const GatherOutputs& op) const { return {Rows::outputs, tokens(op.x).width}; }

 private:
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
