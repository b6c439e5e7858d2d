#include "engine/batch.hpp"

namespace quipu::engine {

void Batch::clear() {
  items_.clear();
  tokens_.clear();
  sequences_.clear();
  output_rows_.clear();
  output_positions_.clear();
}

void Batch::add(ActiveRequest& request, std::int64_t rows) {
  const std::int64_t first = request.sequence().length();
  const auto tokens =
      request.tokens().subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows));
  const auto first_row = static_cast<std::uint32_t>(tokens_.size());
  const std::size_t first_output = output_rows_.size();
  for (std::int64_t i = 0; i < rows; ++i) {
    if (!request.wants_output(first + i)) continue;
    output_positions_.push_back(first + i);
    output_rows_.push_back(first_row + static_cast<std::uint32_t>(i));
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  sequences_.push_back({first_row, static_cast<std::uint32_t>(rows), static_cast<std::int32_t>(first),
                        request.sequence().pages(), request.adapters(),
                        static_cast<std::int32_t>(request.encoded())});
  items_.push_back({&request, rows, first_output, output_rows_.size() - first_output});
}

graph::Step Batch::step(std::span<const graph::KvLayer> kv, float* outputs) const {
  graph::Step step;
  step.tokens = tokens_;
  step.sequences = sequences_;
  step.kv = kv;
  step.output_rows = output_rows_;
  step.outputs = outputs;
  return step;
}

}  // namespace quipu::engine
