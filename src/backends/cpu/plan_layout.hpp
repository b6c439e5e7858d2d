// The private memory of a CPU plan: what its steps need beside the graph's values.
#pragma once

#include "backends/backend.hpp"
#include "backends/cpu/expert_steps.hpp"
#include "backends/cpu/plan_steps.hpp"

namespace quipu::backends::cpu {

inline std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

inline int slot_of(const TensorView& weight) { return weight_slot(static_cast<std::uint32_t>(weight.dtype)); }
inline bool is_quantized(const TensorView& weight) { return is_quantized_slot(slot_of(weight)); }

/// A weight of one row as floats, in place where it lies as such.
FloatWeight float_weight(const TensorView& tensor);

/// Private memory that both schedules of a plan use.
struct PrivateMemory {
  std::size_t bytes = 0;
  int threads = 1;
  PrivateAt work;           ///< a thread's panels, attention state and router scores
  QuantizedAt shared_rows;  ///< quantised activations of all rows
  QuantizedAt own_row;      ///< of one row, a thread's own
  PrivateAt own_norm;       ///< one normalised row, a thread's own
  PrivateAt partial;        ///< attention states of chunks
  std::size_t shared_bytes = 0;
  PrivateAt grouping;   ///< a Grouping of the experts of the layer at work, or of heads
  PrivateAt pair_rows;  ///< quantised activations of every row and expert (or head)
  std::size_t grouping_bytes = 0, pair_bytes = 0;
  bool wide = false;     ///< quantised activations have QuantizedRows::wide
  std::size_t rows = 0;  ///< most rows of a step

  PrivateAt take(std::size_t n, bool per_thread) {
    PrivateAt at{bytes, per_thread ? align64(n) : 0};
    bytes += align64(n) * (per_thread ? static_cast<std::size_t>(threads) : 1);
    return at;
  }
};

PrivateMemory lay_out(const graph::Graph& graph, NodeRange nodes, const graph::MemoryPlan& memory,
                      const Kernels& kernels, int threads);

/// Most tokens of one unit of attention.
std::size_t query_tokens(const graph::Attention& op, const Kernels& kernels);
/// Slopes of ALiBi, Press et al. 2021, a head each; none for a bias of 0. The missing heads of a count that
/// is no power of two come from every other slope of twice as many.
std::vector<float> alibi_slopes(std::int64_t heads, float max_bias);

}  // namespace quipu::backends::cpu
