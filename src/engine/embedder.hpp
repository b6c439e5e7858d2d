// Texts to vectors and scores: whole texts through a model's vector graph, several in one step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "backends/backend.hpp"
#include "models/model.hpp"

namespace quipu::engine {

/// A text as a model reads it.
struct Passage {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> types = {};  ///< of a pair: which text each token belongs to; empty: all 0
};

/// The text with the tokens that the model wants around it.
Passage make_passage(const models::Model& model, std::string_view text);
/// Query and document as a reranker reads them: the model's rerank template, or the first text, what stands
/// between two, the second text.
Passage make_pair(const models::Model& model, std::string_view query, std::string_view document);
/// At most `limit` tokens: the text is cut at its end, a token that the model wants behind it stays.
void truncate(const models::Model& model, Passage& passage, std::int64_t limit);

/// The pooling of a model's file; of one that states none: rank with a classification head and no output
/// layer, mean for encoders, last for others.
models::Pooling default_pooling(const models::Model& model);

struct EmbedderOptions {
  std::optional<models::Pooling> pooling;  ///< nothing: `default_pooling`
  std::int64_t context = 0;  ///< most tokens of a text; 0: the trained context, at most `kDefaultContext`
  std::int64_t batch = 512;  ///< tokens of one step, when several texts share it
  std::uint64_t memory_budget = 0;  ///< bytes for weights and scratch; 0: what the machine has free
  std::vector<std::shared_ptr<backends::Backend>> backends;  ///< as in EngineOptions

  static constexpr std::int64_t kDefaultContext = 8192;
};

/// One pooling of one model. A vector depends on its own text only: the same bytes alone and in any company,
/// with any number of threads. One thread at a time.
class Embedder {
 public:
  /// Throws `Error`: unsupported (rank without a classification head), out_of_memory (what is needed and what
  /// there is), invalid_argument.
  Embedder(std::shared_ptr<const models::Model> model, EmbedderOptions options = {});
  ~Embedder();
  Embedder(Embedder&&) noexcept;

  const models::Model& model() const;
  models::Pooling pooling() const;
  std::int64_t width() const;    ///< of a vector; with rank: number of scores
  std::int64_t context() const;  ///< most tokens of a text
  std::uint64_t bytes() const;   ///< scratch and cache

  /// [rows, width] of each text: one row, with `none` one for each token. Throws `Error`: context_overflow
  /// for a text beyond the context, with both counts; invalid_argument for one without tokens or with an
  /// unknown one.
  std::vector<std::vector<float>> embed(std::span<const Passage> texts);
  /// The checks of `embed` alone; any thread.
  void check(std::span<const Passage> texts) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Scales a vector to Euclidean length 1; one of zeros stays.
void normalize(std::span<float> vector);

}  // namespace quipu::engine
