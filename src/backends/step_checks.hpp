// What a step must satisfy before a plan may run it: plans themselves check nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/graph.hpp"
#include "graph/step.hpp"

namespace quipu::backends {

/// Keeps its room from step to step.
class StepChecks {
 public:
  /// Throws `Error` (invalid_argument) that says what is wrong and where.
  void check(const graph::Graph& graph, const graph::Step& step, std::int64_t max_tokens,
             std::int64_t max_outputs);

 private:
  struct Written {
    std::uint32_t page;
    std::size_t sequence, index;
  };
  void check_written_pages(const graph::Step& step);
  std::vector<Written> written_;
};

}  // namespace quipu::backends
