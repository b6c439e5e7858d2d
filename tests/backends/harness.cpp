#include "harness.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/philox.hpp"

namespace quipu::test {

std::vector<float> random_floats(std::uint64_t seed, std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto bits = philox4x32({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), 0, 0},
                                 {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    const float value = static_cast<float>(bits[0] >> 8) * 0x1p-23F - 1.0F;
    values[i] = bits[1] % 64 == 0 ? 8 * value : value;
  }
  return values;
}

std::vector<float> Weight::decode_row(std::int64_t n) const {
  std::vector<float> values(static_cast<std::size_t>(view.width()));
  info(view.dtype)
      .decode(view.data + static_cast<std::size_t>(n) * view.row_bytes(), values.data(), values.size());
  return values;
}

Weight encode_weight(DType dtype, std::int64_t width, std::int64_t rows, std::span<const float> values) {
  const std::size_t row = row_bytes(dtype, static_cast<std::size_t>(width));
  // Exactly as long as the rows are, so that a kernel that reads past the end is seen by AddressSanitizer.
  auto bytes = std::make_shared<std::vector<std::byte>>(row * static_cast<std::size_t>(rows));
  info(dtype).encode(values.data(), bytes->data(), values.size());
  Weight weight;
  weight.view.name = fmt::format("{}_{}x{}", to_string(dtype), width, rows);
  weight.view.dtype = dtype;
  weight.view.shape = {width, rows, 1, 1};
  weight.view.data = bytes->data();
  weight.bytes = std::move(bytes);
  return weight;
}

Weight random_weight(DType dtype, std::int64_t width, std::int64_t rows, std::uint64_t seed) {
  return encode_weight(dtype, width, rows, random_floats(seed, static_cast<std::size_t>(width * rows)));
}

std::vector<DType> weight_dtypes() {
  std::vector<DType> dtypes;
  for (const DTypeInfo& row : all_dtypes())
    if (row.decode != nullptr && row.encode != nullptr && !row.is_integer) dtypes.push_back(row.dtype);
  return dtypes;
}

Table random_table(std::int64_t rows, std::int64_t width, std::uint64_t seed) {
  return {width, random_floats(seed, static_cast<std::size_t>(rows * width))};
}

TestCache::TestCache(DType k_dtype, DType v_dtype, std::int64_t kv_heads, std::int64_t k_dim,
                     std::int64_t v_dim, std::uint32_t pages)
    : kv_heads_(kv_heads),
      k_row_(row_bytes(k_dtype, static_cast<std::size_t>(k_dim))),
      v_row_(row_bytes(v_dtype, static_cast<std::size_t>(v_dim))) {
  const auto rows = static_cast<std::size_t>(kv_heads * graph::kPagePositions);
  // Pages may be further apart than they are long.
  layer_.k_page_bytes = (rows * k_row_ + 127) / 64 * 64;
  layer_.v_page_bytes = (rows * v_row_ + 127) / 64 * 64;
  k_.assign(layer_.k_page_bytes * pages, std::byte{0xFF});
  v_.assign(layer_.v_page_bytes * pages, std::byte{0xFF});
  layer_.k = k_.data();
  layer_.v = v_.data();
  layer_.k_dtype = k_dtype;
  layer_.v_dtype = v_dtype;
}

std::vector<std::byte> TestCache::position_bytes(std::uint32_t page, std::int64_t slot) const {
  std::vector<std::byte> bytes;
  for (std::int64_t head = 0; head < kv_heads_; ++head) {
    const auto row = static_cast<std::size_t>(head * graph::kPagePositions + slot);
    const std::byte* k = k_.data() + page * layer_.k_page_bytes + row * k_row_;
    const std::byte* v = v_.data() + page * layer_.v_page_bytes + row * v_row_;
    bytes.insert(bytes.end(), k, k + k_row_);
    bytes.insert(bytes.end(), v, v + v_row_);
  }
  return bytes;
}

bool TestCache::untouched(std::uint32_t page, std::int64_t slot) const {
  const std::vector<std::byte> bytes = position_bytes(page, slot);
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0xFF}; });
}

OpProgram::OpProgram(const OpCase& op, const BackendList& backends, std::int64_t max_tokens) {
  graph::Builder builder;
  std::vector<graph::Value> inputs;
  for (const Table& table : op.inputs) {
    tables_.push_back(encode_weight(DType::f32, table.width, table.rows(), table.values));
    inputs.push_back(builder.at(fmt::format("input.{}", inputs.size())).embed(tables_.back().view));
  }
  builder.at("op");
  const graph::Value result = op.build(builder, inputs);
  const bool gathered = builder.info(result).rows == graph::Rows::outputs;
  const graph::Value output = gathered ? result : builder.at("output").gather_outputs(result);
  program_ = std::make_unique<backends::Program>(builder.finish(output), backends, max_tokens, max_tokens);
}

std::int64_t OpProgram::width() const { return program_->graph().value(program_->graph().output).width; }

std::vector<float> OpProgram::run(std::span<const BatchSequence> sequences, TestCache* cache) {
  std::vector<std::uint32_t> rows;
  for (const BatchSequence& sequence : sequences)
    for (std::size_t i = 0; i < sequence.tokens.size(); ++i)
      rows.push_back(static_cast<std::uint32_t>(rows.size()));
  return run(sequences, cache, std::move(rows));
}

std::vector<float> OpProgram::run(std::span<const BatchSequence> sequences, TestCache* cache,
                                  std::vector<std::uint32_t> output_rows) {
  std::vector<std::int32_t> tokens;
  std::vector<graph::SequenceRows> rows;
  for (const BatchSequence& sequence : sequences) {
    rows.push_back({static_cast<std::uint32_t>(tokens.size()),
                    static_cast<std::uint32_t>(sequence.tokens.size()), sequence.first_position,
                    sequence.pages, sequence.adapters, sequence.encoded});
    tokens.insert(tokens.end(), sequence.tokens.begin(), sequence.tokens.end());
  }
  // Room for one more row, which must stay as it is.
  const auto row = static_cast<std::size_t>(width());
  std::vector<float> outputs((output_rows.size() + 1) * row, -12345.0F);
  graph::Step step;
  step.tokens = tokens;
  step.sequences = rows;
  if (cache != nullptr) step.kv = {&cache->layer(), 1};
  step.output_rows = output_rows;
  step.outputs = outputs.data();
  program_->run(step);
  for (std::size_t i = outputs.size() - row; i < outputs.size(); ++i)
    if (outputs[i] != -12345.0F) throw std::logic_error("a row past the outputs was written");
  outputs.resize(outputs.size() - row);
  return outputs;
}

BatchSequence whole_sequence(std::int32_t rows, std::vector<std::uint32_t> pages) {
  BatchSequence sequence;
  for (std::int32_t t = 0; t < rows; ++t) sequence.tokens.push_back(t);
  sequence.pages = std::move(pages);
  return sequence;
}

std::vector<float> run_rows(const OpCase& op, const BackendList& backends, std::int32_t rows) {
  OpProgram program(op, backends, rows);
  const BatchSequence sequence = whole_sequence(rows);
  return program.run({&sequence, 1});
}

std::string difference(std::span<const float> got, std::span<const float> want,
                       std::span<const double> bounds) {
  if (got.size() != want.size() || bounds.size() != want.size())
    return fmt::format("{} values and {} bounds where {} are expected", got.size(), bounds.size(),
                       want.size());
  std::size_t misses = 0, worst = 0;
  double worst_excess = -1;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double distance = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    const bool same = got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]));
    if (same || (std::isfinite(got[i]) && std::isfinite(want[i]) && distance <= bounds[i])) continue;
    ++misses;
    const double excess = std::isfinite(distance) && bounds[i] > 0 ? distance / bounds[i]
                                                                   : std::numeric_limits<double>::infinity();
    if (excess > worst_excess) {
      worst_excess = excess;
      worst = i;
    }
  }
  if (misses == 0) return {};
  return fmt::format("{} of {} values differ; the worst is element {}: {} where {} is expected, bound {}",
                     misses, want.size(), worst, got[worst], want[worst], bounds[worst]);
}

std::string difference(std::span<const float> got, std::span<const float> want, Tolerance tolerance) {
  std::vector<double> bounds(want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    bounds[i] = tolerance.absolute + tolerance.relative * std::abs(static_cast<double>(want[i]));
  return difference(got, want, bounds);
}

std::string byte_difference(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size())
    return fmt::format("{} values where {} are expected", got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    if (std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(want[i]))
      return fmt::format("element {} is {} ({:08x}) where {} ({:08x}) is expected", i, got[i],
                         std::bit_cast<std::uint32_t>(got[i]), want[i],
                         std::bit_cast<std::uint32_t>(want[i]));
  return {};
}

}  // namespace quipu::test
