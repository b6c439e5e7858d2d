// The order of a plan's steps.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "backends/backend.hpp"
#include "backends/cpu/plan_layout.hpp"
#include "backends/cpu/plan_step.hpp"

namespace quipu::backends::cpu {

using Steps = std::vector<std::unique_ptr<PlanStep>>;
/// What threads draw their units of attention from; zeroed before each run.
using Counters = std::vector<std::unique_ptr<std::atomic<std::uint32_t>>>;

/// Steps for any number of rows, or (`single`) for one token, with barriers where data needs them.
Steps build_schedule(const graph::Graph& graph, NodeRange nodes, const graph::MemoryPlan& memory,
                     const Kernels& kernels, PrivateMemory& private_memory, Counters& counters, bool single);

}  // namespace quipu::backends::cpu
