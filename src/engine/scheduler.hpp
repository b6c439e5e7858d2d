// Which rows go into the next batch: policy only, on plain numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace quipu::engine {

/// A running request, as the policy sees it.
struct Waiting {
  std::uint64_t id = 0;
  std::int64_t pending = 0;  ///< tokens to compute; 1 is a decode row
  bool every_row_has_output = false;
};

struct Share {
  std::size_t index;  ///< into the list of waiting requests
  std::int64_t rows;
};

/// Most rows and outputs of one step.
struct StepBudget {
  std::int64_t rows, outputs;
};

/// Decode rows first (each one lets a stream go on), then prompts in chunks with what is left of the budget.
/// Both take turns: each starts behind the request served last. When decode rows alone fill the budget, every
/// second step leaves one row to the prompts.
class Scheduler {
 public:
  /// `waiting` in ascending order of id, each with pending > 0. The shares stay until the next plan.
  std::span<Share> plan(std::span<const Waiting> waiting, StepBudget budget);

 private:
  std::vector<std::size_t> decodes_, prefills_;
  std::vector<Share> shares_;
  std::uint64_t last_decode_ = 0, last_prefill_ = 0;
  bool prefill_starved_ = false;
};

}  // namespace quipu::engine
