// Runs one op, or a few, on any backend: inputs are rows of float tables that the graph embeds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "graph/graph.hpp"

namespace quipu::test {

using BackendList = std::vector<std::shared_ptr<backends::Backend>>;

/// `n` values in [-1, 1), every 64th or so eight times as large; a function of the seed.
std::vector<float> random_floats(std::uint64_t seed, std::size_t n);

/// A weight that owns its bytes.
struct Weight {
  std::shared_ptr<const std::vector<std::byte>> bytes;
  TensorView view;
  /// Row `n` as floats.
  std::vector<float> decode_row(std::int64_t n) const;
};
/// `rows` rows of `width` values encoded as `dtype`.
Weight encode_weight(DType dtype, std::int64_t width, std::int64_t rows, std::span<const float> values);
Weight random_weight(DType dtype, std::int64_t width, std::int64_t rows, std::uint64_t seed);

/// Dtypes that can be decoded and encoded: what the op tests run over.
std::vector<DType> weight_dtypes();

/// A float input: a table whose row t is what token t brings.
struct Table {
  std::int64_t width;
  std::vector<float> values;
  std::int64_t rows() const { return static_cast<std::int64_t>(values.size()) / width; }
};
Table random_table(std::int64_t rows, std::int64_t width, std::uint64_t seed);

/// What to compute: `build` makes the op from the embedded inputs and returns a value with a row per token
/// (or per output).
struct OpCase {
  std::vector<Table> inputs;
  std::function<graph::Value(graph::Builder&, std::span<const graph::Value>)> build;
};

/// One layer of a paged cache for tests. Every byte starts as 0xFF (NaN in all cache dtypes), so that a read
/// of what was never written shows.
class TestCache {
 public:
  TestCache(DType k_dtype, DType v_dtype, std::int64_t kv_heads, std::int64_t k_dim, std::int64_t v_dim,
            std::uint32_t pages);
  const graph::KvLayer& layer() const { return layer_; }
  /// Bytes of the position's keys and values, all heads.
  std::vector<std::byte> position_bytes(std::uint32_t page, std::int64_t slot) const;
  /// True when no byte of the position was written.
  bool untouched(std::uint32_t page, std::int64_t slot) const;
  std::vector<std::byte>& k_bytes() { return k_; }
  std::vector<std::byte>& v_bytes() { return v_; }

 private:
  std::vector<std::byte> k_, v_;
  std::int64_t kv_heads_;
  std::size_t k_row_, v_row_;
  graph::KvLayer layer_;
};

/// Rows of one sequence in a batch: which table rows, at which positions, in which pages.
struct BatchSequence {
  std::vector<std::int32_t> tokens;
  std::int32_t first_position = 0;
  std::vector<std::uint32_t> pages;
  std::vector<float> adapters = {};  ///< factors of the graph's adapters
  std::int32_t encoded = 0;          ///< leading positions that an encoder filled
};

/// A compiled case.
class OpProgram {
 public:
  OpProgram(const OpCase& op, const BackendList& backends, std::int64_t max_tokens);
  /// Result rows of all tokens, in order; or of `output_rows` only.
  std::vector<float> run(std::span<const BatchSequence> sequences, TestCache* cache = nullptr);
  std::vector<float> run(std::span<const BatchSequence> sequences, TestCache* cache,
                         std::vector<std::uint32_t> output_rows);
  std::int64_t width() const;
  backends::Program& program() { return *program_; }

 private:
  std::vector<Weight> tables_;
  std::unique_ptr<backends::Program> program_;
};

/// Table rows 0 … rows-1 at positions 0 … rows-1 of one sequence.
std::vector<float> run_rows(const OpCase& op, const BackendList& backends, std::int32_t rows);
BatchSequence whole_sequence(std::int32_t rows, std::vector<std::uint32_t> pages = {0});

// ---- comparison ----

/// |got - want| <= absolute + relative * |want|.
struct Tolerance {
  double absolute = 0, relative = 0;
};
/// Of results computed in double and rounded once: half a unit in the last place, and a little for numpy's
/// own.
inline constexpr Tolerance kOneRounding{1e-9, 1.2e-7};
/// Empty when all elements agree; otherwise a message with the worst one. A NaN agrees with nothing but a NaN
/// (and with that only if `want` has it); an infinity only with itself.
std::string difference(std::span<const float> got, std::span<const float> want, Tolerance tolerance);
/// The same with a bound of its own for each element.
std::string difference(std::span<const float> got, std::span<const float> want,
                       std::span<const double> bounds);
/// Empty when the bytes are the same; otherwise the first element that differs.
std::string byte_difference(std::span<const float> got, std::span<const float> want);

}  // namespace quipu::test
