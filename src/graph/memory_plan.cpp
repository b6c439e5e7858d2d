#include "graph/memory_plan.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace quipu::graph {
namespace {

[[noreturn]] void fail_too_large(std::int64_t rows) {
  fail(ErrorCode::out_of_memory, "the intermediate values of {} rows do not fit the address space", rows);
}

/// Bytes of one row of a value, rounded up to the alignment.
std::size_t row_bytes(const ValueInfo& value, std::int64_t rows) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::size_t>(value.width), sizeof(float), &bytes) ||
      __builtin_add_overflow(bytes, MemoryPlan::kAlignment - 1, &bytes))
    fail_too_large(rows);
  return bytes / MemoryPlan::kAlignment * MemoryPlan::kAlignment;
}

struct Placed {
  std::size_t offset, bytes;
  std::size_t last_read;  // node index
};

/// Values of one kind of rows: what a row of them takes, and those that live.
struct Area {
  std::int64_t rows;
  std::vector<Placed> live = {};  // by ascending offset
  std::size_t bytes = 0;          // of a row
};

}  // namespace

MemoryPlan plan_memory(const Graph& graph, std::int64_t max_tokens, std::int64_t max_outputs) {
  if (max_tokens < 0 || max_outputs < 0)
    fail(ErrorCode::invalid_argument,
         "a step of {} tokens and {} outputs cannot be planned; both must be >= 0", max_tokens, max_outputs);
  MemoryPlan plan;
  plan.place.resize(graph.values.size());
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

  // Queries and keys turn one after the other: turned keys in the place of the queries would make threads
  // wait.
  for (std::size_t i = 0; i + 1 < graph.nodes.size(); ++i) {
    const auto* turn = std::get_if<Rope>(&graph.nodes[i].op);
    if (turn == nullptr || !std::holds_alternative<Rope>(graph.nodes[i + 1].op)) continue;
    last_read[turn->x.id] = std::max(last_read[turn->x.id], i + 1);
  }

  Area tokens{max_tokens}, outputs{max_outputs};
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (Area* area : {&tokens, &outputs})
      std::erase_if(area->live, [i](const Placed& placed) { return placed.last_read < i; });
    const Value out = graph.nodes[i].out;
    if (out == graph.output) continue;
    const ValueInfo& value = graph.value(out);
    Area& area = value.rows == Rows::tokens ? tokens : outputs;
    const std::size_t bytes = row_bytes(value, area.rows);

    std::size_t offset = 0;
    auto next = area.live.begin();
    while (next != area.live.end() && next->offset - offset < bytes) {
      offset = next->offset + next->bytes;
      ++next;
    }
    std::size_t end = 0;
    if (__builtin_add_overflow(offset, bytes, &end)) fail_too_large(area.rows);
    area.live.insert(next, {offset, bytes, last_read[out.id]});
    (value.rows == Rows::tokens ? plan.place[out.id].per_token : plan.place[out.id].per_output) = offset;
    area.bytes = std::max(area.bytes, end);
  }
  for (const Node& node : graph.nodes)
    if (graph.value(node.out).rows == Rows::outputs) plan.place[node.out.id].per_token = tokens.bytes;
  std::size_t of_outputs = 0;
  if (__builtin_mul_overflow(tokens.bytes, static_cast<std::size_t>(max_tokens), &plan.bytes) ||
      __builtin_mul_overflow(outputs.bytes, static_cast<std::size_t>(max_outputs), &of_outputs) ||
      __builtin_add_overflow(plan.bytes, of_outputs, &plan.bytes))
    fail_too_large(std::max(max_tokens, max_outputs));
  return plan;
}

}  // namespace quipu::graph
