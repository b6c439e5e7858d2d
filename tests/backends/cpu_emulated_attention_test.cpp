// Attention on AMX tiles, emulated where the machine has none: the planes and sums that docs/numerics.md
// promises, worked out in double precision; close to AVX-512's; and the same bytes for a row in whatever
// company.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "backends/cpu/kernels.hpp"
#include "backends/cpu/plan_steps.hpp"
#include "backends/cpu_emulated.hpp"
#include "tensor/dtype.hpp"

#if defined(__x86_64__)
namespace quipu::backends {
namespace {

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

constexpr std::int64_t kReach = 20;

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
  void spoil_value(std::int64_t position) {
    std::vector<float> k(s_.head_dim), v(s_.v_dim, std::numeric_limits<float>::infinity());
    info(s_.type).decode(k_.data() + row(position) * k_row_, k.data(), k.size());
    store(position, k, v);
  }
  /// A stored row as floats.
  std::vector<float> key(std::int64_t position) const { return decoded(k_, k_row_, s_.head_dim, position); }
  std::vector<float> value(std::int64_t position) const { return decoded(v_, v_row_, s_.v_dim, position); }
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

using CpuEmulatedAttention = CpuEmulated;

constexpr const char* kNoTiles =
    "SKIPPED: this machine lacks AVX-512 or its bfloat16, which the AMX kernels use";

/// Index of the first element of other bytes, or -1.
std::ptrdiff_t first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]))
      return static_cast<std::ptrdiff_t>(i);
  return -1;
}

TEST_F(CpuEmulatedAttention, RowsOnTilesDoNotDependOnTheirCompany) {
  if (!ready(Isa::avx512, Isa::amx)) GTEST_SKIP() << kNoTiles;
  for (const Setting& s :
       {Setting{.name = "two pages", .tokens = 70, .group = 1},
        Setting{.name = "a group", .tokens = 25, .first_position = 58, .head_dim = 48, .v_dim = 80},
        Setting{.name = "window", .tokens = 22, .first_position = 100, .type = DType::bf16, .window = 20},
        Setting{.name = "runs", .tokens = 22, .first_position = 120, .run = 16, .slopes = true},
        Setting{.name = "both sides", .tokens = 22, .head_dim = 32, .end = 22, .biases = true}}) {
    const Problem problem(s);
    const std::vector<float> together = problem.run(kernels_amx(), s.tokens, s.group);
    EXPECT_GE(s.tokens * s.group, 64U) << "both ways to make scores";
    EXPECT_EQ(first_difference(problem.run(kernels_amx(), 1, s.group), together), -1) << s.name;
    EXPECT_EQ(first_difference(problem.run(kernels_amx(), 17, 1), together), -1) << s.name;
  }
}

TEST_F(CpuEmulatedAttention, ChunksOnTilesMergeToTheSameBytes) {
  if (!ready(Isa::avx512, Isa::amx)) GTEST_SKIP() << kNoTiles;
  const Problem problem({.name = "past a chunk",
                         .tokens = 3,
                         .first_position = 560,
                         .head_dim = 32,
                         .v_dim = 32,
                         .sinks = true});
  EXPECT_EQ(first_difference(problem.run_by_chunks(kernels_amx()), problem.run(kernels_amx(), 3, 3)), -1);
}

TEST_F(CpuEmulatedAttention, AnInfiniteValueReachesNoRowThatDoesNotSeeIt) {
  if (!ready(Isa::avx512, Isa::amx)) GTEST_SKIP() << kNoTiles;
  const Setting s{.name = "", .tokens = 20, .head_dim = 32, .v_dim = 32};
  Problem problem(s);
  const std::vector<float> before = problem.run(kernels_amx(), s.tokens, s.group);
  problem.spoil_value(11);
  const std::vector<float> after = problem.run(kernels_amx(), s.tokens, s.group);
  const auto row = static_cast<std::ptrdiff_t>(s.group * s.v_dim);
  EXPECT_EQ(first_difference(after, before), 11 * row);
  for (std::size_t i = static_cast<std::size_t>(11 * row); i < after.size(); ++i)
    ASSERT_FALSE(std::isfinite(after[i])) << i;
}

TEST_F(CpuEmulatedAttention, TilesStayWithinATightBoundOfAvx512) {
  if (!ready(Isa::avx512, Isa::amx)) GTEST_SKIP() << kNoTiles;
  const auto largest_difference = [](const Setting& s) {
    const Problem problem(s);
    const std::vector<float> want = problem.run(kernels_avx512(), s.tokens, s.group),
                             got = problem.run(kernels_amx(), s.tokens, s.group);
    double worst = 0;
    for (std::size_t i = 0; i < want.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want[i]));
    return worst;
  };
  // Values are normal, scores reach 20 or so. An operand in two planes is within 2^-16 of itself, so a score
  // is within |q||k| 2^-15 / sqrt(d), here 1e-3 / 4 at most and a tenth of that on average.
  for (const Setting& s :
       {Setting{.name = "f32", .type = DType::f32}, Setting{.name = "f16"},
        Setting{.name = "bf16", .type = DType::bf16}, Setting{.name = "q8_0", .type = DType::q8_0},
        Setting{.name = "q4_0", .type = DType::q4_0}, Setting{.name = "soft cap", .soft_cap = 2},
        Setting{.name = "sinks", .tokens = 5, .first_position = 70, .sinks = true},
        Setting{.name = "slopes", .tokens = 5, .first_position = 70, .slopes = true},
        Setting{.name = "biases", .tokens = 5, .first_position = 70, .biases = true},
        Setting{.name = "window", .tokens = 5, .first_position = 130, .window = 66},
        Setting{.name = "begin", .tokens = 5, .first_position = 70, .begin = 66},
        Setting{.name = "both sides", .tokens = 5, .head_dim = 32, .end = 130},
        Setting{.name = "wide", .tokens = 2, .group = 4, .head_dim = 192, .v_dim = 128}})
    EXPECT_LT(largest_difference(s), 1e-4) << s.name;
}

float up(float x) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffff0000U); }
float to_nearest(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return up(std::bit_cast<float>(bits + 0x7fffU + (bits >> 16 & 1U)));
}

TEST_F(CpuEmulatedAttention, ScoresAndSumsAreThoseOfThePlanes) {
  if (!ready(Isa::avx512, Isa::amx)) GTEST_SKIP() << kNoTiles;
  const Setting s{
      .name = "", .tokens = 9, .first_position = 60, .head_dim = 32, .v_dim = 32, .type = DType::f32};
  const Problem problem(s);
  const std::vector<float> got = problem.run(kernels_amx(), s.tokens, s.group);
  double of_planes = 0, of_one_plane = 0, of_floats = 0;
  for (std::size_t t = 0; t < s.tokens; ++t)
    for (std::size_t h = 0; h < s.group; ++h) {
      const auto seen = static_cast<std::size_t>(s.first_position) + t + 1;
      // 0: floats, 1: the planes, 2: without the second planes.
      for (int kind = 0; kind < 3; ++kind) {
        const auto product = [&](float rounded, float cut) {
          const double a = rounded, b = cut;
          const double high = to_nearest(rounded), low = up(rounded - to_nearest(rounded));
          const double top = up(cut), rest = up(cut - up(cut));
          return kind == 0 ? a * b : kind == 1 ? high * top + low * top + high * rest : high * top;
        };
        std::vector<double> scores(seen), sums(s.v_dim, 0.0);
        for (std::size_t p = 0; p < seen; ++p) {
          const std::vector<float> k = problem.key(static_cast<std::int64_t>(p));
          for (std::size_t e = 0; e < s.head_dim; ++e) scores[p] += product(problem.query(t, h)[e], k[e]);
          scores[p] /= std::sqrt(static_cast<double>(s.head_dim));
        }
        // Spans of 64: the running maximum decides what the planes of a weight are.
        double top = -1e30, total = 0;
        for (std::size_t begin = 0; begin < seen; begin += 64) {
          const std::size_t end = std::min(seen, begin + 64);
          double above = top;
          for (std::size_t p = begin; p < end; ++p) above = std::max(above, scores[p]);
          const double factor = std::exp(top - above);
          total *= factor;
          for (double& x : sums) x *= factor;
          for (std::size_t p = begin; p < end; ++p) {
            const double weight = std::exp(scores[p] - above);
            total += weight;
            const std::vector<float> v = problem.value(static_cast<std::int64_t>(p));
            for (std::size_t e = 0; e < s.v_dim; ++e) sums[e] += product(static_cast<float>(weight), v[e]);
          }
          top = above;
        }
        double& worst = kind == 0 ? of_floats : kind == 1 ? of_planes : of_one_plane;
        for (std::size_t e = 0; e < s.v_dim; ++e)
          worst = std::max(worst, std::abs(sums[e] / total - got[(t * s.group + h) * s.v_dim + e]));
      }
    }
  EXPECT_LT(of_planes, 3e-6);
  EXPECT_GT(of_floats, 6e-6) << "the test cannot tell planes from floats";
  EXPECT_GT(of_one_plane, 1e-3) << "the test cannot tell two planes from one";
}

}  // namespace
}  // namespace quipu::backends
#endif
