// The rows of one step, by request: what the scheduler's shares become for the program.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/active_request.hpp"
#include "graph/step.hpp"

namespace quipu::engine {

/// Reused from step to step.
class Batch {
 public:
  struct Item {
    ActiveRequest* request;
    std::int64_t rows;
    std::size_t first_output, outputs;  ///< which outputs of the step are its own
  };

  void clear();
  /// The next `rows` pending tokens of the request, whose sequence has room for them.
  void add(ActiveRequest& request, std::int64_t rows);
  bool empty() const { return items_.empty(); }
  const std::vector<Item>& items() const { return items_; }
  std::size_t outputs() const { return output_rows_.size(); }
  /// Positions in their sequences of an item's outputs, ascending.
  std::span<const std::int64_t> output_positions(const Item& item) const {
    return std::span(output_positions_).subspan(item.first_output, item.outputs);
  }
  /// Views into the batch; `outputs` has room for `outputs()` rows.
  graph::Step step(std::span<const graph::KvLayer> kv, float* outputs) const;

 private:
  std::vector<Item> items_;
  std::vector<std::int32_t> tokens_;
  std::vector<graph::SequenceRows> sequences_;
  std::vector<std::uint32_t> output_rows_;
  std::vector<std::int64_t> output_positions_;  // of each output
};

}  // namespace quipu::engine
