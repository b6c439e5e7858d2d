// What a step must satisfy before a plan may run it: plans themselves check nothing.
#pragma once

#include <cstdint>

#include "graph/graph.hpp"
#include "graph/step.hpp"

namespace quipu::backends {

/// Throws `Error` (invalid_argument) that says what is wrong and where.
void check_step(const graph::Graph& graph, const graph::Step& step, std::int64_t max_tokens,
                std::int64_t max_outputs);

}  // namespace quipu::backends
