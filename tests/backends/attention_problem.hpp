// Attention of one key/value head by a table of kernels, over scattered pages of random rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "backends/cpu/kernels.hpp"
#include "backends/cpu/plan_steps.hpp"
#include "backends/cpu_emulated.hpp"
#include "tensor/dtype.hpp"

namespace quipu::backends {

struct Setting {
  const char* name;
  std::size_t tokens = 24, group = 3;
  std::int64_t first_position = 0;
  std::size_t head_dim = 64, v_dim = 64;
  DType type = DType::f16;
  std::int64_t window = 0, run = 0, end = 0, begin = 0;
  float soft_cap = 0;
  bool sinks = false, slopes = false, biases = false;
};

inline constexpr std::int64_t kReach = 20;

/// Queries of one key/value head over scattered pages.
class Problem {
 public:
  explicit Problem(const Setting& s) : s_(s) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    const std::int64_t positions =
        std::max<std::int64_t>(s.first_position + static_cast<std::int64_t>(s.tokens), s.end);
    const auto count = static_cast<std::size_t>((positions + 63) / 64);
    pages_.resize(count);
    std::iota(pages_.begin(), pages_.end(), 0U);
    std::shuffle(pages_.begin(), pages_.end(), random);
    k_row_ = row_bytes(s.head_dim), v_row_ = row_bytes(s.v_dim);
    // What no position has stored must not matter: NaNs.
    k_.assign(count * 64 * k_row_, std::byte{0xff});
    v_.assign(count * 64 * v_row_, std::byte{0xff});
    for (std::int64_t p = 0; p < positions; ++p) {
      std::vector<float> k(s.head_dim), v(s.v_dim);
      for (float& x : k) x = normal(random);
      for (float& x : v) x = normal(random);
      k[1] *= 20;  // keys have channels that stand out
      store(p, k, v);
    }
    q_.resize(s.tokens * s.group * s.head_dim);
    for (float& x : q_) x = normal(random);
    for (std::size_t h = 0; h < s.group; ++h) sinks_.push_back(normal(random));
    for (std::size_t h = 0; h < s.group; ++h) slopes_.push_back(0.5F / static_cast<float>(h + 1));
    for (std::size_t i = 0; i < s.group * (2 * kReach + 1); ++i) biases_.push_back(normal(random));
  }

  void store(std::int64_t position, const std::vector<float>& k, const std::vector<float>& v) {
    info(s_.type).encode(k.data(), k_.data() + row(position) * k_row_, k.size());
    info(s_.type).encode(v.data(), v_.data() + row(position) * v_row_, v.size());
  }
  void spoil_value(std::int64_t position, float x = std::numeric_limits<float>::infinity()) {
    std::vector<float> k(s_.head_dim), v(s_.v_dim, x);
    info(s_.type).decode(k_.data() + row(position) * k_row_, k.data(), k.size());
    store(position, k, v);
  }
  /// A stored row as floats.
  std::vector<float> key(std::int64_t position) const { return decoded(k_, k_row_, s_.head_dim, position); }
  std::vector<float> value(std::int64_t position) const { return decoded(v_, v_row_, s_.v_dim, position); }
  /// The scale (part 0) or minimum (part 1) of a block of 32 values; the minimum of what has none is 0.
  float value_scale(std::int64_t position, std::size_t block, std::size_t part) const {
    const bool minima = s_.type == DType::q4_1 || s_.type == DType::q5_1;
    if (part == 1 && !minima) return 0;
    float x = 0;
    info(DType::f16)
        .decode(v_.data() + row(position) * v_row_ + block * info(s_.type).block_bytes + 2 * part, &x, 1);
    return x;
  }
  const float* query(std::size_t token, std::size_t head) const {
    return q_.data() + (token * s_.group + head) * s_.head_dim;
  }

  AttentionArgs args(std::size_t token, std::size_t tokens, std::size_t head, std::size_t heads) const {
    AttentionArgs a;
    a.q = query(token, head);
    a.q_stride = s_.group * s_.head_dim;
    a.tokens = tokens;
    a.group = heads;
    a.first_position = s_.first_position + static_cast<std::int64_t>(token);
    a.head_dim = s_.head_dim;
    a.v_dim = s_.v_dim;
    a.k = k_.data();
    a.v = v_.data();
    a.k_row_bytes = k_row_;
    a.v_row_bytes = v_row_;
    a.k_page_bytes = 64 * k_row_;
    a.v_page_bytes = 64 * v_row_;
    a.k_type = a.v_type = cpu::kv_type(s_.type);
    a.pages = pages_.data();
    a.scale = 1 / std::sqrt(static_cast<float>(s_.head_dim));
    a.soft_cap = s_.soft_cap;
    a.window = s_.window;
    a.run = s_.run;
    a.end = s_.end;
    a.begin = s_.begin;
    if (s_.sinks) a.sinks = sinks_.data() + head;
    if (s_.slopes) a.slopes = slopes_.data() + head;
    if (s_.biases) {
      a.biases = biases_.data() + head * (2 * kReach + 1);
      a.bias_reach = kReach;
    }
    return a;
  }

  /// [tokens][group][v_dim], in calls of `tokens_a_call` tokens and `heads_a_call` heads.
  std::vector<float> run(const Kernels& kernels, std::size_t tokens_a_call, std::size_t heads_a_call) const {
    std::vector<float> out(s_.tokens * s_.group * s_.v_dim, -7.0F);
    for (std::size_t t = 0; t < s_.tokens; t += tokens_a_call)
      for (std::size_t h = 0; h < s_.group; h += heads_a_call) {
        AttentionArgs a =
            args(t, std::min(tokens_a_call, s_.tokens - t), h, std::min(heads_a_call, s_.group - h));
        a.out = out.data() + (t * s_.group + h) * s_.v_dim;
        a.out_stride = s_.group * s_.v_dim;
        Aligned<std::byte> scratch(attention_scratch(s_.head_dim, s_.v_dim, a.tokens * a.group));
        a.scratch = scratch.data;
        kernels.attention(a);
      }
    return out;
  }

  /// The same, a token at a time by chunks of 512 positions whose states are merged.
  std::vector<float> run_by_chunks(const Kernels& kernels) const {
    std::vector<float> out(s_.tokens * s_.group * s_.v_dim, -7.0F);
    const std::size_t floats = (s_.v_dim + 15) / 16 * 16 + 16;
    for (std::size_t t = 0; t < s_.tokens; ++t) {
      const std::int64_t position = s_.first_position + static_cast<std::int64_t>(t);
      const auto chunks = static_cast<std::size_t>(position / 512 + 1);
      Aligned<float> states(chunks * s_.group * floats);
      for (std::size_t c = 0; c < chunks; ++c) {
        AttentionArgs a = args(t, 1, 0, s_.group);
        a.chunk_begin = static_cast<std::int64_t>(c);
        a.chunk_end = a.chunk_begin + 1;
        a.partial = states.data + c * s_.group * floats;
        Aligned<std::byte> scratch(attention_scratch(s_.head_dim, s_.v_dim, s_.group));
        a.scratch = scratch.data;
        kernels.attention(a);
      }
      for (std::size_t h = 0; h < s_.group; ++h)
        kernels.attention_merge(states.data + h * floats, chunks, s_.group * floats, s_.v_dim,
                                s_.sinks ? sinks_.data() + h : nullptr,
                                out.data() + (t * s_.group + h) * s_.v_dim);
    }
    return out;
  }

 private:
  std::size_t row_bytes(std::size_t n) const {
    return n / info(s_.type).block_size * info(s_.type).block_bytes;
  }
  std::size_t row(std::int64_t position) const {
    return pages_[static_cast<std::size_t>(position / 64)] * std::size_t{64} +
           static_cast<std::size_t>(position % 64);
  }
  std::vector<float> decoded(const std::vector<std::byte>& rows, std::size_t bytes, std::size_t n,
                             std::int64_t position) const {
    std::vector<float> x(n);
    info(s_.type).decode(rows.data() + row(position) * bytes, x.data(), n);
    return x;
  }

  Setting s_;
  std::vector<std::uint32_t> pages_;
  std::size_t k_row_ = 0, v_row_ = 0;
  std::vector<std::byte> k_, v_;
  std::vector<float> q_, sinks_, slopes_, biases_;
};

/// The running softmax of docs/numerics.md in double precision: add(begin, weights) adds the values of a span
/// of 64 from `begin` on to `sums`, [value elements]; then these are divided by the sum of the weights.
template <class Add>
void attend_by_spans(const std::vector<double>& scores, std::vector<double>& sums, const Add& add) {
  double top = -1e30, total = 0;
  for (std::size_t begin = 0; begin < scores.size(); begin += 64) {
    const auto first = scores.begin() + static_cast<std::ptrdiff_t>(begin);
    const std::vector<double> span(
        first, first + static_cast<std::ptrdiff_t>(std::min<std::size_t>(64, scores.size() - begin)));
    const double above = std::max(top, *std::max_element(span.begin(), span.end()));
    const double factor = std::exp(top - above);
    total *= factor;
    for (double& x : sums) x *= factor;
    std::vector<double> weights;
    for (const double score : span) total += weights.emplace_back(std::exp(score - above));
    add(begin, weights);
    top = above;
  }
  for (double& x : sums) x /= total;
}

}  // namespace quipu::backends
