// Attention over the paged cache: an exact softmax in double, one position after the other.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "backends/reference/kernels.hpp"
#include "graph/distance_bias.hpp"

namespace quipu::backends::reference {
namespace {

using graph::kPagePositions;

/// Slope of each head. Source: Press et al. 2021 (ALiBi), with the published rule for head counts that are no
/// power of two: the missing ones come from every other slope of twice as many heads.
std::vector<double> alibi_slopes(std::int64_t heads, double max_bias) {
  std::vector<double> slopes(static_cast<std::size_t>(heads), 0.0);
  if (max_bias <= 0) return slopes;
  std::int64_t power = 1;
  while (power * 2 <= heads) power *= 2;
  for (std::int64_t h = 0; h < heads; ++h) {
    const double exponent =
        h < power ? -max_bias * static_cast<double>(h + 1) / static_cast<double>(power)
                  : -max_bias * static_cast<double>(2 * (h - power) + 1) / static_cast<double>(2 * power);
    slopes[static_cast<std::size_t>(h)] = std::exp2(exponent);
  }
  return slopes;
}

/// Where one position of one head lies in a layer's keys or values.
std::byte* cache_row(std::byte* base, std::size_t page_bytes, DType dtype, std::int64_t dim,
                     const graph::SequenceRows& sequence, std::int64_t kv_head, std::int64_t position) {
  const std::size_t page = sequence.pages[static_cast<std::size_t>(position / kPagePositions)];
  const auto row = static_cast<std::size_t>(kv_head * kPagePositions + position % kPagePositions);
  return base + page * page_bytes + row * row_bytes(dtype, static_cast<std::size_t>(dim));
}

/// A softmax-weighted sum that takes its terms one by one: everything is relative to the largest score so
/// far.
class RunningSoftmax {
 public:
  RunningSoftmax(double* state, std::int64_t dim) : state_(state), dim_(dim) {}
  static std::int64_t doubles(std::int64_t dim) { return dim + 2; }

  /// A sink takes part in the sum of weights only.
  void start(std::optional<double> sink) {
    std::fill(state_, state_ + doubles(dim_), 0.0);
    maximum() = sink.value_or(-std::numeric_limits<double>::infinity());
    weight() = sink ? 1.0 : 0.0;
  }
  void add(double score, const float* value) {
    if (score > maximum()) {
      const double shrink = std::exp(maximum() - score);
      for (std::int64_t i = 0; i < dim_; ++i) sum()[i] *= shrink;
      weight() *= shrink;
      maximum() = score;
    }
    const double w = std::exp(score - maximum());
    for (std::int64_t i = 0; i < dim_; ++i) sum()[i] += w * value[i];
    weight() += w;
  }
  void finish(float* out) {
    for (std::int64_t i = 0; i < dim_; ++i) out[i] = static_cast<float>(sum()[i] / weight());
  }

 private:
  double& maximum() { return state_[0]; }
  double& weight() { return state_[1]; }
  double* sum() { return state_ + 2; }
  double* state_;
  std::int64_t dim_;
};

/// Keys and values of one head of Attention or StoreKv into the cache.
template <class Op>
void store_rows(const Op& op, const Context& c, const graph::SequenceRows& sequence, std::int64_t kv_head) {
  const graph::KvLayer& layer = c.step.kv[static_cast<std::size_t>(op.layer)];
  for (std::uint32_t r = 0; r < sequence.rows; ++r) {
    const std::int64_t position = sequence.first_position + static_cast<std::int64_t>(r);
    const std::int64_t row = static_cast<std::int64_t>(sequence.first_row) + r;
    info(layer.k_dtype)
        .encode(
            c.row(op.k, row) + kv_head * op.head_dim,
            cache_row(layer.k, layer.k_page_bytes, layer.k_dtype, op.head_dim, sequence, kv_head, position),
            static_cast<std::size_t>(op.head_dim));
    info(layer.v_dtype)
        .encode(c.row(op.v, row) + kv_head * op.v_dim,
                cache_row(layer.v, layer.v_page_bytes, layer.v_dtype, op.v_dim, sequence, kv_head, position),
                static_cast<std::size_t>(op.v_dim));
  }
}

class Attend {
 public:
  Attend(const graph::Attention& op, const Target& target)
      : op_(op),
        out_(target.out),
        group_(op.heads / op.kv_heads),
        slopes_(alibi_slopes(op.heads, op.alibi_max_bias)),
        biases_(graph::distance_biases(op)) {
    if (op.sinks) sinks_ = decode(*op.sinks);
    states_ = static_cast<std::size_t>(target.max_rows * group_ * RunningSoftmax::doubles(op.v_dim));
  }

  std::size_t work_bytes() const {
    return states_ * sizeof(double) + static_cast<std::size_t>(op_.head_dim + op_.v_dim) * sizeof(float);
  }

  void operator()(const Context& c) const {
    const graph::KvLayer& layer = c.step.kv[static_cast<std::size_t>(op_.layer)];
    for (const graph::SequenceRows& sequence : c.step.sequences)
      for (std::int64_t kv_head = 0; kv_head < op_.kv_heads; ++kv_head) {
        if (!op_.stored) store_rows(op_, c, sequence, kv_head);
        attend(c, layer, sequence, kv_head);
      }
  }

 private:
  double score(const float* q, const float* k, std::int64_t head, std::int64_t distance) const {
    double dot = 0;
    for (std::int64_t i = 0; i < op_.head_dim; ++i)
      dot += static_cast<double>(q[i]) * static_cast<double>(k[i]);
    double s = dot * op_.scale;
    if (op_.soft_cap > 0) s = op_.soft_cap * std::tanh(s / op_.soft_cap);
    if (!biases_.empty()) {
      const std::int64_t far = op_.max_distance, to_key = std::clamp(-distance, -far, far);
      s += biases_[static_cast<std::size_t>(head * (2 * far + 1) + far + to_key)];
    }
    return s - slopes_[static_cast<std::size_t>(head)] * std::abs(static_cast<double>(distance));
  }

  /// Each stored key and value is decoded once and shown to every row and head that may see it.
  void attend(const Context& c, const graph::KvLayer& layer, const graph::SequenceRows& sequence,
              std::int64_t kv_head) const {
    auto* states = reinterpret_cast<double*>(c.work);
    auto* k = reinterpret_cast<float*>(states + states_);
    float* v = k + op_.head_dim;
    const auto state = [&](std::int64_t row, std::int64_t member) {
      return RunningSoftmax(states + (row * group_ + member) * RunningSoftmax::doubles(op_.v_dim), op_.v_dim);
    };
    const std::int64_t rows = sequence.rows, first = sequence.first_position;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t m = 0; m < group_; ++m)
        state(r, m).start(
            sinks_.empty() ? std::nullopt
                           : std::optional<double>(sinks_[static_cast<std::size_t>(kv_head * group_ + m)]));

    // How far a row looks back and ahead.
    constexpr std::int64_t kAll = std::numeric_limits<std::int32_t>::max();
    const std::int64_t back = op_.window == 0 ? kAll : op_.causal ? op_.window - 1 : op_.window / 2;
    const std::int64_t ahead = op_.causal ? 0 : back;
    const bool crosses = op_.reach == graph::Reach::encoded;
    std::int64_t begin = std::max<std::int64_t>(0, first - back);
    if (op_.reach == graph::Reach::decoded) begin = std::max<std::int64_t>(begin, sequence.encoded);
    const std::int64_t end = crosses ? sequence.encoded : first + rows;
    for (std::int64_t position = begin; position < end; ++position) {
      info(layer.k_dtype)
          .decode(cache_row(layer.k, layer.k_page_bytes, layer.k_dtype, op_.head_dim, sequence, kv_head,
                            position),
                  k, static_cast<std::size_t>(op_.head_dim));
      info(layer.v_dtype)
          .decode(
              cache_row(layer.v, layer.v_page_bytes, layer.v_dtype, op_.v_dim, sequence, kv_head, position),
              v, static_cast<std::size_t>(op_.v_dim));
      for (std::int64_t r = std::max<std::int64_t>(0, position - first - ahead); r < rows; ++r) {
        const std::int64_t distance = first + r - position;
        if (distance > back && !crosses) break;
        if (op_.chunk > 0 && position / op_.chunk != (first + r) / op_.chunk) continue;
        for (std::int64_t m = 0; m < group_; ++m) {
          const std::int64_t head = kv_head * group_ + m;
          const float* q = c.row(op_.q, sequence.first_row + r) + head * op_.head_dim;
          state(r, m).add(score(q, k, head, distance), v);
        }
      }
    }
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t m = 0; m < group_; ++m)
        state(r, m).finish(c.row(out_, sequence.first_row + r) + (kv_head * group_ + m) * op_.v_dim);
  }

  graph::Attention op_;
  graph::Value out_;
  std::int64_t group_;  ///< query heads of a key-value head
  std::vector<double> slopes_;
  std::vector<float> biases_;  ///< by head and distance, or empty
  std::vector<float> sinks_;
  std::size_t states_ = 0;  ///< doubles
};

}  // namespace

Kernel make_kernel(const graph::Attention& op, const Target& target) {
  Attend attend(op, target);
  const std::size_t bytes = attend.work_bytes();
  return {std::move(attend), bytes};
}

Kernel make_kernel(const graph::StoreKv& op, const Target&) {
  return {[op](const Context& c) {
    for (const graph::SequenceRows& sequence : c.step.sequences)
      for (std::int64_t kv_head = 0; kv_head < op.kv_heads; ++kv_head) store_rows(op, c, sequence, kv_head);
  }};
}

}  // namespace quipu::backends::reference
