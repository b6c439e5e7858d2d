#include "backends/cpu/plan_layout.hpp"

#include <algorithm>
#include <cmath>

namespace quipu::backends::cpu {

FloatWeight float_weight(const TensorView& tensor) {
  FloatWeight w;
  if (tensor.dtype == DType::f32 && reinterpret_cast<std::uintptr_t>(tensor.data) % alignof(float) == 0) {
    w.data = reinterpret_cast<const float*>(tensor.data);
    return w;
  }
  auto values = std::make_shared<std::vector<float>>(size(tensor.elements()));
  info(tensor.dtype).decode(tensor.data, values->data(), values->size());
  w.data = values->data();
  w.owned = std::move(values);
  return w;
}

std::size_t query_tokens(const graph::Attention& op, const Kernels& kernels) {
  return std::max<std::size_t>(1, kernels.query_rows / size(op.heads / op.kv_heads));
}

std::vector<float> alibi_slopes(std::int64_t heads, float max_bias) {
  std::vector<float> slopes;
  if (max_bias <= 0) return slopes;
  std::int64_t power = 1;
  while (power * 2 <= heads) power *= 2;
  for (std::int64_t h = 0; h < heads; ++h) {
    const double step = h < power ? static_cast<double>(h + 1) / static_cast<double>(power)
                                  : static_cast<double>(2 * (h - power) + 1) / static_cast<double>(2 * power);
    slopes.push_back(static_cast<float>(std::exp2(-static_cast<double>(max_bias) * step)));
  }
  return slopes;
}

namespace {

/// The most that any node needs of each kind of memory.
struct Needs {
  const graph::Graph& graph;
  const Kernels& kernels;
  std::size_t rows;
  std::size_t work = 64, quantized = 0, normed = 0, partial = 0;
  std::size_t grouping = 0, pair_rows[2] = {0, 0};  ///< without and with `wide`
  bool wide = false;                                ///< something reads QuantizedRows::wide

  template <class Op>
  void operator()(const Op&) {}
  void operator()(const graph::Linear& op) {
    linear(op.weight);
    if (is_quantized(op.weight)) quantized = std::max(quantized, size(op.weight.width()));
  }
  void operator()(const graph::RmsNorm& op) { normed = std::max(normed, size(graph.value(op.x).width)); }
  void operator()(const graph::LayerNorm& op) { normed = std::max(normed, size(graph.value(op.x).width)); }
  void operator()(const graph::Attention& op) {
    const std::size_t queries = query_tokens(op, kernels) * size(op.heads / op.kv_heads);
    work = std::max(work, attention_scratch(size(op.head_dim), size(op.v_dim), queries));
    partial = std::max(partial, size(op.heads) * AttendStep::kMaxChunks *
                                    AttendStep::partial_floats(size(op.v_dim)) * sizeof(float));
  }
  void operator()(const graph::MoeRoute& op) {
    work = std::max(work, size(2 * graph.value(op.logits).width + op.groups) * sizeof(float));
  }
  void operator()(const graph::MoeLinear& op) { grouped(op.weight, size(graph.value(op.route).width / 2)); }
  void operator()(const graph::HeadLinear& op) { grouped(op.weight, size(op.weight.shape[2])); }

 private:
  void linear(const TensorView& weight) {
    work = std::max(work, slot_scratch(kernels, slot_of(weight), size(weight.width())));
    wide = wide || (kernels.wide_rows != SIZE_MAX && info(weight.dtype).block_size == kSlab);
  }
  void grouped(const TensorView& weight, std::size_t used) {
    linear(weight);
    grouping = std::max(grouping, Grouping::bytes(size(weight.shape[2]), rows * used));
    if (!is_quantized(weight)) return;
    for (const bool with : {false, true})
      pair_rows[with] =
          std::max(pair_rows[with], QuantizedAt::bytes(size(weight.width()), rows * used, with));
  }
};

}  // namespace

PrivateMemory lay_out(const graph::Graph& graph, NodeRange nodes, const graph::MemoryPlan& memory,
                      const Kernels& kernels, int threads) {
  const std::size_t rows = size(std::max(memory.max_tokens, memory.max_outputs));
  Needs needs{.graph = graph, .kernels = kernels, .rows = rows};
  for (std::size_t i = nodes.begin; i < nodes.end; ++i) std::visit(needs, graph.nodes[i].op);
  PrivateMemory p;
  p.threads = threads;
  p.work = p.take(needs.work, true);
  if (needs.quantized > 0) {
    p.shared_bytes = QuantizedAt::bytes(needs.quantized, rows, needs.wide);
    p.shared_rows = {p.take(p.shared_bytes, false), rows, needs.wide};
    p.own_row = {p.take(QuantizedAt::bytes(needs.quantized, 1, false), true), 1, false};
  }
  p.own_norm = p.take(needs.normed * sizeof(float), true);
  if (threads > 1) p.partial = p.take(needs.partial, false);
  p.rows = rows;
  p.grouping_bytes = needs.grouping;
  p.grouping = p.take(needs.grouping, false);
  p.pair_bytes = needs.pair_rows[needs.wide];
  p.pair_rows = p.take(p.pair_bytes, false);
  p.wide = needs.wide;
  return p;
}

}  // namespace quipu::backends::cpu
