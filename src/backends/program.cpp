// Program: a graph placed on backends, compiled, and run step by step.
#include <utility>

#include "backends/backend.hpp"
#include "backends/step_checks.hpp"
#include "core/error.hpp"

namespace quipu::backends {
namespace {

/// The first backend that takes the node.
std::size_t place(const graph::Graph& graph, const graph::Node& node,
                  std::span<const std::shared_ptr<Backend>> backends) {
  std::string reasons;
  for (std::size_t b = 0; b < backends.size(); ++b) {
    const std::optional<std::string> reason = backends[b]->declines(graph, node);
    if (!reason) return b;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", backends[b]->name(), *reason);
  }
  fail(ErrorCode::unsupported, "no backend runs node '{}' ({}): {}", printable(node.name),
       graph::op_name(node.op), reasons);
}

}  // namespace

struct Program::Impl {
  graph::Graph graph;
  graph::MemoryPlan memory;
  StepChecks checks;
  std::vector<std::size_t> placement;
  std::vector<std::shared_ptr<Backend>> backends;
  std::unique_ptr<Buffer> scratch;
  std::vector<std::unique_ptr<Plan>> plans;  // last: they refer to what stands above
};

Program::Program(graph::Graph graph, std::span<const std::shared_ptr<Backend>> backends,
                 std::int64_t max_tokens, std::int64_t max_outputs)
    : impl_(std::make_unique<Impl>()) {
  Impl& p = *impl_;
  if (backends.empty()) fail(ErrorCode::invalid_argument, "a program needs at least one backend");
  p.graph = std::move(graph);
  p.backends.assign(backends.begin(), backends.end());
  for (const graph::Node& node : p.graph.nodes) p.placement.push_back(place(p.graph, node, backends));
  p.memory = graph::plan_memory(p.graph, max_tokens, max_outputs);
  p.scratch = backends[0]->allocate(0, p.memory.bytes);

  for (std::size_t begin = 0; begin < p.placement.size();) {
    std::size_t end = begin + 1;
    while (end < p.placement.size() && p.placement[end] == p.placement[begin]) ++end;
    p.plans.push_back(p.backends[p.placement[begin]]->compile(p.graph, {begin, end}, p.memory));
    begin = end;
  }
}

Program::~Program() = default;
Program::Program(Program&&) noexcept = default;

const graph::Graph& Program::graph() const { return impl_->graph; }
std::int64_t Program::max_tokens() const { return impl_->memory.max_tokens; }
std::int64_t Program::max_outputs() const { return impl_->memory.max_outputs; }
const std::vector<std::size_t>& Program::placement() const { return impl_->placement; }

void Program::run(const graph::Step& step) {
  Impl& p = *impl_;
  p.checks.check(p.graph, step, p.memory.max_tokens, p.memory.max_outputs);
  if (step.tokens.empty()) return;
  for (const std::unique_ptr<Plan>& plan : p.plans) plan->run(step, p.scratch->data());
}

std::size_t Program::scratch_bytes() const {
  std::size_t bytes = impl_->memory.bytes;
  for (const std::unique_ptr<Plan>& plan : impl_->plans) bytes += plan->private_bytes();
  return bytes;
}

}  // namespace quipu::backends
