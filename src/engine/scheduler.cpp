#include "engine/scheduler.hpp"

#include <algorithm>

namespace quipu::engine {

namespace {

/// Indices of the requests of one kind, starting behind the one with id `last`.
void in_turn(std::span<const Waiting> waiting, bool decode, std::uint64_t last,
             std::vector<std::size_t>& order) {
  order.clear();
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if ((waiting[i].pending == 1) == decode) order.push_back(i);
  }
  const auto behind =
      std::find_if(order.begin(), order.end(), [&](std::size_t i) { return waiting[i].id > last; });
  std::rotate(order.begin(), behind, order.end());
}

}  // namespace

std::span<Share> Scheduler::plan(std::span<const Waiting> waiting, StepBudget budget) {
  in_turn(waiting, true, last_decode_, decodes_);
  in_turn(waiting, false, last_prefill_, prefills_);
  shares_.clear();
  std::int64_t for_decodes = std::min(budget.rows, budget.outputs);
  if (prefill_starved_ && !prefills_.empty()) for_decodes = std::min(for_decodes, budget.rows - 1);
  for (const std::size_t i : decodes_) {
    if (for_decodes-- <= 0) break;
    shares_.push_back({i, 1});
    --budget.rows;
    --budget.outputs;
    last_decode_ = waiting[i].id;
  }
  const std::size_t decoding = shares_.size();
  for (const std::size_t i : prefills_) {
    if (budget.rows <= 0 || budget.outputs <= 0) break;
    const std::int64_t rows =
        std::min({waiting[i].pending, budget.rows,
                  waiting[i].every_row_has_output ? budget.outputs : waiting[i].pending});
    shares_.push_back({i, rows});
    budget.rows -= rows;
    budget.outputs -= waiting[i].every_row_has_output ? rows : 1;
    last_prefill_ = waiting[i].id;
  }
  prefill_starved_ = !prefills_.empty() && shares_.size() == decoding;
  return shares_;
}

}  // namespace quipu::engine
