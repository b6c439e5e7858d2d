// Runs a model's graph on a backend without the engine: one sequence, a page table made by hand.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "backends/backend.hpp"
#include "models/model.hpp"

namespace quipu::test {

class ModelRun {
 public:
  ModelRun(std::shared_ptr<const models::Model> model, std::shared_ptr<backends::Backend> backend,
           std::int64_t max_positions, std::int64_t max_rows, DType kv_dtype = DType::f32,
           std::optional<models::Pooling> vectors = std::nullopt)
      : ModelRun(model, vectors ? model->build_vector_graph(*vectors) : model->build_graph(), {},
                 std::move(backend), max_positions, max_rows, kv_dtype) {}
  /// The same with a graph that has adapters, and their factors.
  ModelRun(std::shared_ptr<const models::Model> model, graph::Graph graph, std::vector<float> adapters,
           std::shared_ptr<backends::Backend> backend, std::int64_t max_positions, std::int64_t max_rows,
           DType kv_dtype = DType::f32)
      : model_(std::move(model)),
        backends_{std::move(backend)},
        program_(std::move(graph), backends_, max_rows, max_rows),
        adapters_(std::move(adapters)) {
    const auto count =
        static_cast<std::uint32_t>((max_positions + graph::kPagePositions - 1) / graph::kPagePositions);
    // Pages in falling order: a kernel that took page numbers for positions would show.
    for (std::uint32_t i = 0; i < count; ++i) pages_.push_back(count - 1 - i);
    for (const graph::KvShape& layer : program_.graph().kv_shapes) {
      const auto rows = static_cast<std::size_t>(layer.kv_heads * graph::kPagePositions);
      const std::size_t k_bytes = rows * row_bytes(kv_dtype, static_cast<std::size_t>(layer.key_dim));
      const std::size_t v_bytes = rows * row_bytes(kv_dtype, static_cast<std::size_t>(layer.value_dim));
      storage_.emplace_back(k_bytes * count);
      std::byte* k = storage_.back().data();
      storage_.emplace_back(v_bytes * count);
      std::byte* v = storage_.back().data();
      layers_.push_back({k, v, k_bytes, v_bytes, kv_dtype, kv_dtype});
    }
  }

  /// Appends tokens in one step; the logits of all of them, or of the last one only: [rows, vocab].
  std::vector<float> push(std::span<const std::int32_t> tokens, bool last_only = false) {
    const graph::SequenceRows rows{
        0, static_cast<std::uint32_t>(tokens.size()), position_, pages_, adapters_, encoded_};
    std::vector<std::uint32_t> outputs(tokens.size());
    std::iota(outputs.begin(), outputs.end(), 0u);
    if (last_only) outputs = {outputs.back()};
    const graph::Graph& graph = program_.graph();
    std::vector<float> logits(outputs.size() * static_cast<std::size_t>(graph.value(graph.output).width));
    program_.run({tokens, {&rows, 1}, layers_, outputs, logits.data()});
    position_ += static_cast<std::int32_t>(tokens.size());
    return logits;
  }
  /// The prompt of an encoder-decoder model, in one step of its encoder; then `push` brings what the decoder
  /// reads.
  void encode(std::span<const std::int32_t> tokens) {
    const auto rows = static_cast<std::int64_t>(tokens.size());
    backends::Program encoder(model_->build_encoder_graph(), backends_, rows, rows);
    const graph::SequenceRows sequence{0, static_cast<std::uint32_t>(rows), 0, pages_};
    encoder.run({tokens, {&sequence, 1}, layers_, {}, nullptr});
    position_ = encoded_ = static_cast<std::int32_t>(rows);
  }
  /// The same, at most `chunk` tokens a step.
  std::vector<float> push_in_chunks(std::span<const std::int32_t> tokens, std::size_t chunk) {
    std::vector<float> all;
    for (std::size_t i = 0; i < tokens.size(); i += chunk) {
      const std::vector<float> part = push(tokens.subspan(i, std::min(chunk, tokens.size() - i)));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

 private:
  std::shared_ptr<const models::Model> model_;
  std::vector<std::shared_ptr<backends::Backend>> backends_;
  backends::Program program_;
  std::vector<float> adapters_;
  std::vector<std::uint32_t> pages_;
  std::vector<std::vector<std::byte>> storage_;
  std::vector<graph::KvLayer> layers_;
  std::int32_t position_ = 0, encoded_ = 0;
};

}  // namespace quipu::test
