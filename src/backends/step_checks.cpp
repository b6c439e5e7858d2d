#include "backends/step_checks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "core/error.hpp"

namespace quipu::backends {
namespace {

using graph::kPagePositions;

void check_tokens(const graph::Graph& graph, const graph::Step& step) {
  for (std::size_t t = 0; t < step.tokens.size(); ++t)
    if (step.tokens[t] < 0 || step.tokens[t] >= graph.token_limit)
      fail(ErrorCode::invalid_argument, "token {} at row {} is outside the vocabulary of {}", step.tokens[t],
           t, graph.token_limit);
  if (!step.types.empty() && step.types.size() != step.tokens.size())
    fail(ErrorCode::invalid_argument, "{} tokens have {} types; expected as many, or none",
         step.tokens.size(), step.types.size());
  for (std::size_t t = 0; t < step.types.size(); ++t)
    if (step.types[t] < 0 || step.types[t] >= graph.type_limit)
      fail(ErrorCode::invalid_argument, "token type {} at row {} is outside the {} of the model",
           step.types[t], t, graph.type_limit);
}

void check_outputs(const graph::Step& step) {
  for (std::size_t i = 0; i < step.output_rows.size(); ++i) {
    if (step.output_rows[i] >= step.tokens.size())
      fail(ErrorCode::invalid_argument, "output {} asks for row {}, but the step has {} rows", i,
           step.output_rows[i], step.tokens.size());
    if (i > 0 && step.output_rows[i] <= step.output_rows[i - 1])
      fail(ErrorCode::invalid_argument, "output rows must ascend, but row {} follows row {}",
           step.output_rows[i], step.output_rows[i - 1]);
  }
  if (!step.output_rows.empty() && step.outputs == nullptr)
    fail(ErrorCode::invalid_argument, "{} outputs are asked for, but there is no memory to write them to",
         step.output_rows.size());
}

void check_sequences(const graph::Graph& graph, const graph::Step& step) {
  std::uint64_t covered = 0;
  for (std::size_t s = 0; s < step.sequences.size(); ++s) {
    const graph::SequenceRows& sequence = step.sequences[s];
    if (sequence.first_row != covered)
      fail(ErrorCode::invalid_argument,
           "sequence {} starts at row {}; expected {}, the end of the one before", s, sequence.first_row,
           covered);
    covered += sequence.rows;
    const std::int64_t end = std::int64_t{sequence.first_position} + sequence.rows;
    if (sequence.first_position < 0 || end > std::numeric_limits<std::int32_t>::max())
      fail(ErrorCode::invalid_argument, "sequence {} has positions {} to {}; expected 0 to 2147483646", s,
           sequence.first_position, end - 1);
    if (end > graph.position_limit)
      fail(ErrorCode::invalid_argument,
           "sequence {} reaches position {}, but the model has learned {} positions", s, end - 1,
           graph.position_limit);
    if (graph.whole_sequences && sequence.first_position != 0)
      fail(ErrorCode::invalid_argument,
           "sequence {} begins at position {}, but the model looks at whole sequences: expected 0", s,
           sequence.first_position);
    if (sequence.encoded < (graph.reads_encoded ? 1 : 0) || sequence.encoded > sequence.first_position)
      fail(ErrorCode::invalid_argument, "sequence {} has {} positions of an encoder before position {}{}", s,
           sequence.encoded, sequence.first_position, graph.reads_encoded ? "; expected at least 1" : "");
    if (!sequence.adapters.empty() && sequence.adapters.size() != static_cast<std::size_t>(graph.adapters))
      fail(ErrorCode::invalid_argument, "sequence {} has factors for {} adapters, the graph has {}", s,
           sequence.adapters.size(), graph.adapters);
    for (const float factor : sequence.adapters)
      if (!std::isfinite(factor))
        fail(ErrorCode::invalid_argument, "sequence {} has {} as the factor of an adapter", s, factor);
    const std::uint64_t room = sequence.pages.size() * static_cast<std::uint64_t>(kPagePositions);
    if (graph.kv_layers > 0 && room < static_cast<std::uint64_t>(end))
      fail(ErrorCode::invalid_argument, "sequence {} has {} pages of {} positions, but reaches {} positions",
           s, sequence.pages.size(), kPagePositions, end);
  }
  if (covered != step.tokens.size())
    fail(ErrorCode::invalid_argument, "the sequences cover {} rows, but the step has {} tokens", covered,
         step.tokens.size());
}

std::string cache_dtype_names() {
  std::string names;
  for (std::size_t i = 0; i < graph::kCacheDtypes.size(); ++i)
    names += fmt::format("{}{}",
                         i == 0                               ? ""
                         : i + 1 < graph::kCacheDtypes.size() ? ", "
                                                              : " or ",
                         to_string(graph::kCacheDtypes[i]));
  return names;
}

void check_cache_part(std::int32_t layer, const char* part, const std::byte* data, DType dtype,
                      std::size_t page_bytes, std::int64_t kv_heads, std::int64_t dim) {
  const DTypeInfo& type = info(dtype);
  if (std::find(graph::kCacheDtypes.begin(), graph::kCacheDtypes.end(), dtype) == graph::kCacheDtypes.end())
    fail(ErrorCode::invalid_argument, "cache layer {}: {} are {}; expected {}", layer, part, type.name,
         cache_dtype_names());
  if (dim % type.block_size != 0)
    fail(ErrorCode::invalid_argument, "cache layer {}: {} of {} elements a head cannot be {}", layer, part,
         dim, type.name);
  const std::size_t needed =
      row_bytes(dtype, static_cast<std::size_t>(dim)) * static_cast<std::size_t>(kv_heads * kPagePositions);
  if (data == nullptr || page_bytes < needed)
    fail(ErrorCode::invalid_argument, "cache layer {}: pages of {} have {} bytes; expected {} or more", layer,
         part, data == nullptr ? 0 : page_bytes, needed);
}

void check_cache(const graph::Graph& graph, const graph::Step& step) {
  if (step.kv.size() != static_cast<std::size_t>(graph.kv_layers))
    fail(ErrorCode::invalid_argument, "the step brings {} cache layers; the graph has {}", step.kv.size(),
         graph.kv_layers);
  for (std::int32_t i = 0; i < graph.kv_layers; ++i) {
    const graph::KvLayer& layer = step.kv[static_cast<std::size_t>(i)];
    const graph::KvShape& shape = graph.kv_shapes[static_cast<std::size_t>(i)];
    if (shape.kv_heads == 0) continue;
    check_cache_part(i, "keys", layer.k, layer.k_dtype, layer.k_page_bytes, shape.kv_heads, shape.key_dim);
    check_cache_part(i, "values", layer.v, layer.v_dtype, layer.v_page_bytes, shape.kv_heads,
                     shape.value_dim);
  }
}

}  // namespace

/// No page that this step writes may stand anywhere else in the step.
void StepChecks::check_written_pages(const graph::Step& step) {
  written_.clear();
  for (std::size_t s = 0; s < step.sequences.size(); ++s) {
    const graph::SequenceRows& sequence = step.sequences[s];
    if (sequence.rows == 0) continue;
    const std::int64_t last = std::int64_t{sequence.first_position} + sequence.rows - 1;
    for (std::int64_t i = sequence.first_position / kPagePositions; i <= last / kPagePositions; ++i)
      written_.push_back({sequence.pages[static_cast<std::size_t>(i)], s, static_cast<std::size_t>(i)});
  }
  std::sort(written_.begin(), written_.end(),
            [](const Written& a, const Written& b) { return a.page < b.page; });
  for (std::size_t s = 0; s < step.sequences.size(); ++s) {
    const graph::SequenceRows& sequence = step.sequences[s];
    const std::int64_t end = std::int64_t{sequence.first_position} + sequence.rows;
    const auto used = static_cast<std::size_t>((end + kPagePositions - 1) / kPagePositions);
    for (std::size_t i = 0; i < used; ++i) {
      const std::uint32_t page = sequence.pages[i];
      auto found = std::lower_bound(written_.begin(), written_.end(), page,
                                    [](const Written& w, std::uint32_t p) { return w.page < p; });
      for (; found != written_.end() && found->page == page; ++found)
        if (found->sequence != s || found->index != i)
          fail(ErrorCode::invalid_argument,
               "page {} is written as page {} of sequence {}, but it is also page {} of sequence {}", page,
               found->index, found->sequence, i, s);
    }
  }
}

void StepChecks::check(const graph::Graph& graph, const graph::Step& step, std::int64_t max_tokens,
                       std::int64_t max_outputs) {
  if (step.tokens.size() > static_cast<std::size_t>(max_tokens) ||
      step.output_rows.size() > static_cast<std::size_t>(max_outputs))
    fail(ErrorCode::invalid_argument,
         "a step of {} tokens and {} outputs; the program was compiled for at most {} and {}",
         step.tokens.size(), step.output_rows.size(), max_tokens, max_outputs);
  check_tokens(graph, step);
  check_outputs(step);
  check_sequences(graph, step);
  check_cache(graph, step);
  if (graph.kv_layers > 0) check_written_pages(step);
}

}  // namespace quipu::backends
