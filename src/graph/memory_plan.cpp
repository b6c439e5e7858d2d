#include "graph/memory_plan.hpp"

#include <algorithm>
#include <limits>

#include "core/error.hpp"

namespace quipu::graph {
namespace {

constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

/// Bytes of a value, rounded up to the alignment.
std::size_t padded_bytes(const ValueInfo& value, std::int64_t rows) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::size_t>(rows), static_cast<std::size_t>(value.width), &bytes) ||
      __builtin_mul_overflow(bytes, sizeof(float), &bytes) ||
      __builtin_add_overflow(bytes, MemoryPlan::kAlignment - 1, &bytes))
    fail(ErrorCode::out_of_memory, "{} rows of {} values do not fit the address space", rows, value.width);
  return bytes / MemoryPlan::kAlignment * MemoryPlan::kAlignment;
}

struct Placed {
  std::size_t offset, bytes;
  std::size_t last_read;  // node index
};

}  // namespace

MemoryPlan plan_memory(const Graph& graph, std::int64_t max_tokens, std::int64_t max_outputs) {
  if (max_tokens < 0 || max_outputs < 0)
    fail(ErrorCode::invalid_argument,
         "a step of {} tokens and {} outputs cannot be planned; both must be >= 0", max_tokens, max_outputs);
  MemoryPlan plan;
  plan.offset.assign(graph.values.size(), kNowhere);
  plan.max_tokens = max_tokens;
  plan.max_outputs = max_outputs;

  // A value nobody reads still lives while its node runs.
  std::vector<std::size_t> last_read(graph.values.size(), 0);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    last_read[graph.nodes[i].out.id] = i;
    for (const Value input : op_inputs(graph.nodes[i].op)) last_read[input.id] = i;
  }
  // A backend may add in the pass of the linear before: the sum must not take the place of that one's input.
  for (std::size_t i = 0; i + 1 < graph.nodes.size(); ++i) {
    const auto* linear = std::get_if<Linear>(&graph.nodes[i].op);
    const auto* sum = std::get_if<Add>(&graph.nodes[i + 1].op);
    if (linear == nullptr || sum == nullptr) continue;
    if (sum->a != graph.nodes[i].out && sum->b != graph.nodes[i].out) continue;
    last_read[linear->x.id] = std::max(last_read[linear->x.id], i + 1);
  }

  std::vector<Placed> live;  // by ascending offset
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    std::erase_if(live, [i](const Placed& placed) { return placed.last_read < i; });
    const Value out = graph.nodes[i].out;
    if (out == graph.output) continue;
    const ValueInfo& value = graph.value(out);
    const std::size_t bytes = padded_bytes(value, value.rows == Rows::tokens ? max_tokens : max_outputs);

    std::size_t offset = 0;
    auto next = live.begin();
    while (next != live.end() && next->offset - offset < bytes) {
      offset = next->offset + next->bytes;
      ++next;
    }
    std::size_t end = 0;
    if (__builtin_add_overflow(offset, bytes, &end))
      fail(ErrorCode::out_of_memory, "the intermediate values of {} tokens do not fit the address space",
           max_tokens);
    live.insert(next, {offset, bytes, last_read[out.id]});
    plan.offset[out.id] = offset;
    plan.bytes = std::max(plan.bytes, end);
  }
  return plan;
}

}  // namespace quipu::graph
