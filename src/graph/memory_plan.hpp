// Where each intermediate value lives in one scratch buffer.
#pragma once

#include <cstddef>
#include <vector>

#include "graph/graph.hpp"

namespace quipu::graph {

struct MemoryPlan {
  static constexpr std::size_t kAlignment = 64;
  /// Where a value begins in a step of so many rows. It grows with them, so that a small step touches the
  /// beginning of the buffer only, and the rest costs no memory until a large one comes.
  struct Place {
    std::size_t per_token = 0, per_output = 0;  ///< bytes
    std::size_t offset(std::size_t tokens, std::size_t outputs) const {
      return per_token * tokens + per_output * outputs;
    }
  };
  std::vector<Place> place;  ///< by value id
  std::size_t bytes = 0;     ///< size of the scratch buffer
  std::int64_t max_tokens = 0, max_outputs = 0;
};

/// Assigns places so that values whose lifetimes (first write to last read) overlap never share bytes, in a
/// step of any size up to the most; first fit, values of tokens before those of outputs. An op's output never
/// shares bytes with its inputs. The graph's output is not in the buffer: it is written to `Step::outputs`.
MemoryPlan plan_memory(const Graph& graph, std::int64_t max_tokens, std::int64_t max_outputs);

}  // namespace quipu::graph
