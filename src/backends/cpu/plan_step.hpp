// The pieces a compiled CPU plan is made of. Every thread calls every step in order and takes its share; a
// step says which memory it touches and how its share is cut, from which the compiler of the plan finds where
// a barrier is needed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/cpu/kernels.hpp"
#include "core/threads.hpp"
#include "graph/graph.hpp"
#include "graph/memory_plan.hpp"
#include "graph/step.hpp"

namespace quipu::backends::cpu {

/// Where a row of the batch stands.
struct RowPlace {
  std::uint32_t sequence;
  std::int32_t position;
};

/// What steps see of a run.
struct RunContext {
  const graph::Step* step = nullptr;
  std::byte* scratch = nullptr;
  std::byte* private_memory = nullptr;
  std::size_t tokens = 0, outputs = 0;
  const RowPlace* places = nullptr;  ///< [tokens]
  std::span<const double> bounds;    ///< of the threads' shares: one more than threads

  int threads() const { return static_cast<int>(bounds.size()) - 1; }
  /// Thread's part of what is cut among them all, the same for every step of a run.
  Range share(std::size_t total, int thread, std::size_t grain = 1) const {
    return quipu::share(total, thread, bounds, grain);
  }
  /// Factor of an adapter for a row of a value.
  float adapter_factor(graph::Rows kind, std::size_t row, std::size_t adapter) const {
    const std::size_t token = kind == graph::Rows::tokens ? row : step->output_rows[row];
    const auto factors = step->sequences[places[token].sequence].adapters;
    return factors.empty() ? 0 : factors[adapter];
  }
  std::size_t rows(graph::Rows kind) const { return kind == graph::Rows::tokens ? tokens : outputs; }
};

/// How the work on a region is cut among the threads: two uses of the same region with equal cuts never meet
/// on a byte of another thread.
struct Cut {
  enum class Kind : std::uint8_t {
    rows_of_tokens,
    rows_of_outputs,
    columns,  ///< `width` columns in multiples of `grain`
    first,    ///< thread 0 alone
    any,      ///< whichever thread, or all of it
  };
  Kind kind = Kind::any;
  std::size_t width = 0, grain = 0;
  bool operator==(const Cut&) const = default;

  static Cut rows(graph::Rows kind) {
    return {kind == graph::Rows::tokens ? Kind::rows_of_tokens : Kind::rows_of_outputs, 0, 0};
  }
  static Cut columns(std::size_t width, std::size_t grain) { return {Kind::columns, width, grain}; }
};

/// A use of bytes [begin, end) of one memory space.
struct Access {
  enum class Space : std::uint8_t { scratch, outputs, shared, cache };
  Space space;
  bool write;
  std::size_t begin, end;
  Cut cut;
};

/// Whether two uses share a byte.
inline bool meet(const Access& a, const Access& b) {
  return a.space == b.space && a.begin < b.end && b.begin < a.end;
}

class PlanStep {
 public:
  virtual ~PlanStep() = default;
  virtual void run(const RunContext& context, int thread) = 0;
  /// Whether a run leaves this step nothing to do: its barrier is then left to the next one that works.
  virtual bool idle(const RunContext&) const { return false; }
  /// Products of a thread's share where they tell how fast it is, else 0.
  virtual double products(const RunContext&, int /*thread*/) const { return 0; }
  std::vector<Access> accesses;
  bool barrier_before = false;
  std::int32_t adapter = -1;  ///< of graph::Node: the step runs only when a sequence uses it
};

/// A value's rows, in the scratch buffer or the step's outputs.
struct ValueAt {
  graph::MemoryPlan::Place place;
  std::size_t width = 0;
  graph::Rows rows = graph::Rows::tokens;
  bool is_output = false;

  float* data(const RunContext& c) const {
    return is_output ? c.step->outputs
                     : reinterpret_cast<float*>(c.scratch + place.offset(c.tokens, c.outputs));
  }
  float* row(const RunContext& c, std::size_t r) const { return data(c) + r * width; }
};

/// Where private data lies: at `offset`, one copy a thread `per_thread` bytes apart (0: one for all).
struct PrivateAt {
  std::size_t offset = 0, per_thread = 0;
  std::byte* at(const RunContext& c, int thread) const {
    return c.private_memory + offset + per_thread * static_cast<std::size_t>(thread);
  }
};

/// A buffer of quantised activations, carved for a width at run time.
struct QuantizedAt {
  PrivateAt memory;
  std::size_t max_rows = 0;
  bool wide = false;  ///< with room for QuantizedRows::wide
  static std::size_t bytes(std::size_t width, std::size_t rows, bool wide);
  QuantizedRows view(const RunContext& c, int thread, std::size_t width) const;
};

/// This thread's part of `rows` rows under a cut by rows or thread 0.
Range row_share(const RunContext& c, const Cut& cut, std::size_t rows, int thread);

constexpr std::size_t align64(std::size_t n) { return (n + 63) / 64 * 64; }

/// A weight of one row (norms, biases, sinks) as floats: in the file, or decoded.
struct FloatWeight {
  const float* data = nullptr;
  std::shared_ptr<const std::vector<float>> owned;
};

}  // namespace quipu::backends::cpu
