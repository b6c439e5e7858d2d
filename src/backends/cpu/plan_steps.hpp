// One class an op of the CPU plan.
#pragma once

#include "backends/cpu/plan_step.hpp"

namespace quipu::backends::cpu {

/// Of a cache dtype (graph::kCacheDtypes).
KvType kv_type(DType dtype);

/// What all steps need to know.
struct StepBase : PlanStep {
  const Kernels* k = nullptr;
};

struct EmbedStep final : StepBase {
  TensorView weight;
  enum class By : std::uint8_t { token, position, type } by = By::token;  ///< what numbers the weight's rows
  ValueAt out;
  Cut cut;
  void run(const RunContext& c, int thread) override;
};

/// RmsNorm or LayerNorm. With `own` every thread computes the (single) row for itself, into private memory.
struct NormStep final : StepBase {
  ValueAt x, out;
  FloatWeight weight, bias;
  std::size_t group = 0;     ///< elements a norm runs over
  bool own_weights = false;  ///< each group of a row has its own
  float eps = 0;
  bool layer = false;
  Cut cut;
  bool own = false;
  PrivateAt own_out;
  bool quantizes = false;  ///< for the quantised linears that read it
  bool floats = true;      ///< somebody reads the norm itself
  QuantizedAt to;
  void run(const RunContext& c, int thread) override;
};

/// Activations of one value as the quantised linears read them.
struct QuantizeStep final : StepBase {
  ValueAt x;
  bool own = false, x_is_own = false;  ///< single row: each thread for itself
  PrivateAt own_x;
  QuantizedAt to;
  void run(const RunContext& c, int thread) override;
};

struct LinearStep final : StepBase {
  TensorView weight;
  FloatWeight bias;
  ValueAt x, out;
  int slot = 0;
  bool quantized = false;
  bool x_is_own = false;
  PrivateAt own_x;
  QuantizedAt from;
  bool has_residual = false;
  ValueAt residual;
  std::size_t grain = 16;
  PrivateAt work;
  const LinearStep* next = nullptr;  ///< whose weights a thread reads after these, if known
  void run(const RunContext& c, int thread) override;
  double products(const RunContext& c, int thread) const override {
    const Range r = columns(c, thread);
    return static_cast<double>((r.end - r.begin) * x.width * c.rows(x.rows));
  }

 private:
  Range columns(const RunContext& c, int thread) const { return c.share(out.width, thread, grain); }
  const std::uint8_t* row(std::size_t column) const {
    return reinterpret_cast<const std::uint8_t*>(weight.data) + column * weight.row_bytes();
  }
};

/// Elementwise ops, cut by columns like the linears before them.
struct ElementwiseStep final : StepBase {
  enum class Kind : std::uint8_t {
    glu,
    activate,
    xielu,
    add,
    mul,
    scale,
    add_adapted,
    add_vector,
    mul_vector
  };
  Kind kind = Kind::add;
  ValueAt a, b, out;
  int activation = 0;
  float factor = 1;
  std::size_t adapter = 0;     ///< of add_adapted
  FloatWeight vector;          ///< of add_vector and mul_vector
  float limit = 0, shift = 0;  ///< of a glu
  float xielu[4] = {};
  std::size_t grain = 16;
  void run(const RunContext& c, int thread) override;
};

/// cos and sin of every row's angles, shared by all layers that turn alike.
struct RopeTableStep final : StepBase {
  std::shared_ptr<const std::vector<double>> inv_freq;
  float magnitude = 1;
  PrivateAt table;  ///< [tokens][2][pairs]
  Cut cut;
  void run(const RunContext& c, int thread) override;
};

struct RopeStep final : StepBase {
  ValueAt x, out;
  std::size_t heads = 0, head_dim = 0, pairs = 0, first = 0;
  bool neox = false;
  PrivateAt table;
  Cut cut;  ///< rows, or columns by head
  void run(const RunContext& c, int thread) override;
};

/// The step's keys and values into the cache.
struct StoreStep final : StepBase {
  ValueAt key, value;
  std::size_t layer = 0, kv_heads = 0, head_dim = 0, v_dim = 0;
  bool by_head = false;
  void run(const RunContext& c, int thread) override;
};

/// Row ops that need the whole row: GaussianTopK.
struct TopKStep final : StepBase {
  ValueAt x, out;
  float deviations = 0;
  Cut cut;
  void run(const RunContext& c, int thread) override;
};

/// Every part of the result, by columns.
struct MixStep final : StepBase {
  ValueAt x, weights, out;
  std::size_t parts = 1;
  void run(const RunContext& c, int thread) override;
};

struct AttendStep final : StepBase {
  ValueAt q, out;
  std::size_t layer = 0, heads = 0, kv_heads = 0, head_dim = 0, v_dim = 0;
  float scale = 1, soft_cap = 0;
  std::int64_t window = 0, chunk = 0;
  bool causal = true;
  graph::Reach reach = graph::Reach::all;
  FloatWeight sinks;
  std::vector<float> slopes;
  std::vector<float> biases;  ///< by head and distance, or empty
  std::int64_t bias_reach = 0;
  PrivateAt work;
  std::size_t query_tokens = 16;  ///< most tokens in one unit of work
  std::atomic<std::uint32_t>* next_unit = nullptr;
  bool single = false;
  PrivateAt partial;  ///< single: [heads][kMaxChunks] states
  void run(const RunContext& c, int thread) override;

  static constexpr std::size_t kMaxChunks = 256;
  static std::size_t partial_floats(std::size_t v_dim) { return (v_dim + 15) / 16 * 16 + 16; }
  /// Chunks of 512 positions a single row at this position walks, when they are worth sharing out; else 1.
  std::size_t split_chunks(const RunContext& c) const;

 private:
  /// The first position that the single row sees, and the last one.
  std::pair<std::int64_t, std::int64_t> seen_by_single(const RunContext& c) const;
  AttentionArgs args(const RunContext& c, const graph::SequenceRows& s, std::size_t kv_head,
                     std::size_t first_head, std::size_t heads_of_it, int thread) const;
  void run_units(const RunContext& c, int thread);
  void run_single(const RunContext& c, int thread);
};

/// After AttendStep of a single row whose chunks were shared out: merges them, by head.
struct MergeStep final : StepBase {
  const AttendStep* attend = nullptr;
  void run(const RunContext& c, int thread) override;
  bool idle(const RunContext& c) const override { return attend->split_chunks(c) == 1; }
};

struct TemperatureStep final : StepBase {
  ValueAt out;
  float scale = 0;
  std::int64_t length = 1, offset = 0;
  Cut cut;
  void run(const RunContext& c, int thread) override;
};

/// Runs of elements of a row, copied side by side, for each of `groups` parts: Slice and Concat.
struct CopyStep final : StepBase {
  struct Run {
    ValueAt from;
    std::size_t first = 0, part = 0,
                count = 0;  ///< part: elements between one group's run and the next one's
  };
  std::vector<Run> runs;
  std::size_t groups = 1;
  ValueAt out;
  Cut cut;
  void run(const RunContext& c, int thread) override;
};

struct GatherStep final : StepBase {
  ValueAt x, out;
  Cut cut;
  void run(const RunContext& c, int thread) override;
};

struct PoolStep final : StepBase {
  ValueAt x, out;
  graph::Pool::Kind kind = graph::Pool::Kind::mean;
  Cut cut;
  void run(const RunContext& c, int thread) override;
};

}  // namespace quipu::backends::cpu
