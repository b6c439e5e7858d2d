// Compiles a graph to CPU steps.
#pragma once

#include <memory>

#include "backends/backend.hpp"
#include "backends/cpu/kernels.hpp"

namespace quipu::backends::cpu {

/// What `declines` answers for a node.
std::optional<std::string> decline_reason(const graph::Graph& graph, const graph::Node& node);

/// `allocate` gives the plan's private memory.
std::unique_ptr<Plan> compile_plan(const graph::Graph& graph, NodeRange nodes,
                                   const graph::MemoryPlan& memory, const Kernels& kernels,
                                   std::shared_ptr<ThreadPool> threads, Backend& owner);

}  // namespace quipu::backends::cpu
