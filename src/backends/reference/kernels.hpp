// The reference kernels: one overload of `make_kernel` an op.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "graph/graph.hpp"
#include "graph/memory_plan.hpp"
#include "graph/step.hpp"

namespace quipu::backends::reference {

/// What a kernel sees of a step.
struct Context {
  const graph::Graph& graph;
  const graph::MemoryPlan& memory;
  const graph::Step& step;
  std::byte* scratch;
  std::byte* work;  ///< the kernel's own working memory, 64-byte aligned

  std::int64_t rows(graph::Value v) const {
    return static_cast<std::int64_t>(graph.value(v).rows == graph::Rows::tokens ? step.tokens.size()
                                                                                : step.output_rows.size());
  }
  std::int64_t width(graph::Value v) const { return graph.value(v).width; }
  float* data(graph::Value v) const {
    if (v == graph.output) return step.outputs;
    return reinterpret_cast<float*>(scratch +
                                    memory.place[v.id].offset(step.tokens.size(), step.output_rows.size()));
  }
  float* row(graph::Value v, std::int64_t index) const { return data(v) + index * width(v); }
};

struct Kernel {
  std::function<void(const Context&)> run;
  std::size_t work_bytes = 0;  ///< it needs
};

/// Where a kernel's result goes, and how many rows a step may have.
struct Target {
  graph::Value out;
  std::int64_t max_rows;
};

Kernel make_kernel(const graph::Embed& op, const Target& target);
Kernel make_kernel(const graph::EmbedPositions& op, const Target& target);
Kernel make_kernel(const graph::EmbedTypes& op, const Target& target);
Kernel make_kernel(const graph::RmsNorm& op, const Target& target);
Kernel make_kernel(const graph::LayerNorm& op, const Target& target);
Kernel make_kernel(const graph::Linear& op, const Target& target);
Kernel make_kernel(const graph::Rope& op, const Target& target);
Kernel make_kernel(const graph::Attention& op, const Target& target);
Kernel make_kernel(const graph::StoreKv& op, const Target& target);
Kernel make_kernel(const graph::Glu& op, const Target& target);
Kernel make_kernel(const graph::Activate& op, const Target& target);
Kernel make_kernel(const graph::Xielu& op, const Target& target);
Kernel make_kernel(const graph::GaussianTopK& op, const Target& target);
Kernel make_kernel(const graph::PositionTemperature& op, const Target& target);
Kernel make_kernel(const graph::Add& op, const Target& target);
Kernel make_kernel(const graph::Mul& op, const Target& target);
Kernel make_kernel(const graph::Scale& op, const Target& target);
Kernel make_kernel(const graph::Mix& op, const Target& target);
Kernel make_kernel(const graph::AddAdapted& op, const Target& target);
Kernel make_kernel(const graph::AddVector& op, const Target& target);
Kernel make_kernel(const graph::MulVector& op, const Target& target);
Kernel make_kernel(const graph::Slice& op, const Target& target);
Kernel make_kernel(const graph::Concat& op, const Target& target);
Kernel make_kernel(const graph::HeadLinear& op, const Target& target);
Kernel make_kernel(const graph::MoeRoute& op, const Target& target);
Kernel make_kernel(const graph::MoeLinear& op, const Target& target);
Kernel make_kernel(const graph::MoeCombine& op, const Target& target);
Kernel make_kernel(const graph::GatherOutputs& op, const Target& target);
Kernel make_kernel(const graph::Pool& op, const Target& target);

/// Sum of x[i] * w[i] in double.
double dot(const float* x, const float* w, std::size_t n);
/// All elements of a weight as float.
std::vector<float> decode(const TensorView& weight);
/// The same, or `elements` zeros when there is none.
std::vector<float> decode(const std::optional<TensorView>& weight, std::int64_t elements);

}  // namespace quipu::backends::reference
