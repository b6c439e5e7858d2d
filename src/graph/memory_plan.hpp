// Where each intermediate value lives in one scratch buffer.
#pragma once

#include <cstddef>
#include <vector>

#include "graph/graph.hpp"

namespace quipu::graph {

struct MemoryPlan {
  static constexpr std::size_t kAlignment = 64;
  std::vector<std::size_t> offset;  ///< by value id, bytes from the start of the scratch buffer
  std::size_t bytes = 0;            ///< size of the scratch buffer
  std::int64_t max_tokens = 0, max_outputs = 0;
};

/// Assigns offsets so that values whose lifetimes (first write to last read) overlap never share bytes; first
/// fit. An op's output never shares bytes with its inputs. The graph's output is not in the buffer (offset
/// SIZE_MAX): it is written to `Step::outputs`.
MemoryPlan plan_memory(const Graph& graph, std::int64_t max_tokens, std::int64_t max_outputs);

}  // namespace quipu::graph
