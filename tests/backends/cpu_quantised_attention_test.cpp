// Attention over quantised keys and values: the integer products that docs/numerics.md promises, worked out
// in double precision, and the same bytes for a row in whatever company and on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "backends/attention_problem.hpp"
#include "backends/cpu/kernels.hpp"
#include "core/cpu_features.hpp"

namespace quipu::backends {
namespace {

constexpr DType kQuantised[] = {DType::q8_0, DType::q4_0, DType::q4_1,
                                DType::q5_0, DType::q5_1, DType::iq4_nl};

/// `n` floats as 12-bit integers times one scale.
std::vector<double> twelve_bits(const float* x, std::size_t n) {
  float top = 0;
  for (std::size_t i = 0; i < n; ++i) top = std::max(top, std::abs(x[i]));
  std::vector<double> rounded(n, 0.0);
  if (top == 0) return rounded;
  for (std::size_t i = 0; i < n; ++i)
    rounded[i] = std::nearbyint(x[i] * (2039.0F / top)) * (static_cast<double>(top) / 2039);
  return rounded;
}

/// Attention of one query row; with `whole`, queries and weights as they are.
std::vector<double> expected(const Problem& problem, const Setting& s, std::size_t token, std::size_t head,
                             bool whole) {
  const auto seen = static_cast<std::size_t>(s.first_position) + token + 1;
  const float* query = problem.query(token, head);
  std::vector<double> q(query, query + s.head_dim);
  for (std::size_t b = 0; b < s.head_dim && !whole; b += 256)
    std::ranges::copy(twelve_bits(query + b, std::min<std::size_t>(256, s.head_dim - b)),
                      q.begin() + static_cast<std::ptrdiff_t>(b));
  std::vector<double> scores(seen, 0.0), sums(s.v_dim, 0.0);
  for (std::size_t p = 0; p < seen; ++p) {
    const std::vector<float> k = problem.key(static_cast<std::int64_t>(p));
    for (std::size_t e = 0; e < s.head_dim; ++e) scores[p] += q[e] * k[e];
    scores[p] /= std::sqrt(static_cast<double>(s.head_dim));
  }
  attend_by_spans(scores, sums, [&](std::size_t begin, const std::vector<double>& weights) {
    for (std::size_t b = 0; b < s.v_dim / 32; ++b) {
      const auto scale = [&](std::size_t p, std::size_t part) {
        return problem.value_scale(static_cast<std::int64_t>(begin + p), b, part);
      };
      std::vector<float> scaled;
      for (std::size_t p = 0; p < weights.size(); ++p)
        scaled.push_back(static_cast<float>(weights[p]) * scale(p, 0));
      std::vector<double> rounded = twelve_bits(scaled.data(), scaled.size());
      if (whole) rounded.assign(scaled.begin(), scaled.end());
      for (std::size_t p = 0; p < weights.size(); ++p) {
        const std::vector<float> v = problem.value(static_cast<std::int64_t>(begin + p));
        const double d = scale(p, 0), m = scale(p, 1);
        for (std::size_t e = 32 * b; e < 32 * (b + 1); ++e)
          sums[e] += rounded[p] * std::nearbyint((v[e] - m) / d) + weights[p] * m;
      }
    }
  });
  return sums;
}

TEST(CpuQuantisedAttention, ScoresAndSumsAreThoseOfTwelveBits) {
  for (const DType type : kQuantised) {
    const Setting s{
        .name = "", .tokens = 9, .first_position = 130, .head_dim = 64, .v_dim = 96, .type = type};
    const Problem problem(s);
    for (const Isa isa : available_isas()) {
      const std::vector<float> got = problem.run(kernels_for(isa), s.tokens, s.group);
      // A weight at the border of two integers may fall to either side: so most outputs, not all.
      std::size_t of_twelve_bits = 0, of_floats = 0;
      double worst = 0;
      for (std::size_t t = 0; t < s.tokens; ++t)
        for (std::size_t h = 0; h < s.group; ++h) {
          const float* row = got.data() + (t * s.group + h) * s.v_dim;
          const std::vector<double> want = expected(problem, s, t, h, false),
                                    other = expected(problem, s, t, h, true);
          for (std::size_t e = 0; e < s.v_dim; ++e) {
            of_twelve_bits += std::abs(want[e] - row[e]) > 1e-5 ? 1 : 0;
            of_floats += std::abs(other[e] - row[e]) > 1e-5 ? 1 : 0;
            worst = std::max(worst, std::abs(other[e] - row[e]));
          }
        }
      EXPECT_LT(of_twelve_bits, got.size() / 20) << to_string(type) << ", " << to_string(isa);
      EXPECT_GT(of_floats, got.size() / 2) << "the test cannot tell twelve bits from floats";
      EXPECT_LT(worst, 2e-2) << to_string(type) << ", " << to_string(isa);
    }
  }
}

TEST(CpuQuantisedAttention, GivesARowTheSameBytesInAnyCompanyAndOnEveryIsa) {
  for (const DType type : kQuantised)
    for (const Setting& s :
         {Setting{.name = "two pages", .tokens = 70, .group = 1, .type = type},
          Setting{.name = "a group",
          .tokens = 25,
          .first_position = 58,
          .head_dim = 96,
          .v_dim = 32,
          .type = type},
          Setting{.name = "window", .tokens = 22, .first_position = 100, .type = type, .window = 20},
          Setting{.name = "runs",
          .tokens = 22,
          .group = 4,
          .first_position = 120,
          .type = type,
          .run = 16,
          .slopes = true},
          Setting{.name = "all",
          .tokens = 9,
          .group = 7,
          .first_position = 60,
          .type = type,
          .soft_cap = 3,
          .sinks = true,
          .biases = true}}) {
      const Problem problem(s);
      const std::vector<float> want = problem.run(kernels_baseline(), s.tokens, s.group);
      ASSERT_TRUE(std::ranges::all_of(want, [](float x) { return std::isfinite(x); })) << s.name;
      for (const Isa isa : available_isas()) {
        const Kernels& kernels = kernels_for(isa);
        EXPECT_EQ(problem.run(kernels, s.tokens, s.group), want) << s.name << ", " << to_string(isa);
        EXPECT_EQ(problem.run(kernels, 1, s.group), want) << s.name << ", " << to_string(isa);
        EXPECT_EQ(problem.run(kernels, 17, 1), want) << s.name << ", " << to_string(isa);
        EXPECT_EQ(problem.run(kernels, 5, 2), want) << s.name << ", " << to_string(isa);
      }
    }
}

TEST(CpuQuantisedAttention, ChunksMergeToTheSameBytes) {
  const Setting s{.name = "", .tokens = 3, .first_position = 1100, .type = DType::q8_0, .sinks = true};
  const Problem problem(s);
  const std::vector<float> want = problem.run(kernels_baseline(), s.tokens, s.group);
  for (const Isa isa : available_isas())
    EXPECT_EQ(problem.run_by_chunks(kernels_for(isa)), want) << to_string(isa);
}

TEST(CpuQuantisedAttention, AValueWithoutAFiniteScaleIsFeltByThoseWhoSeeItOnly) {
  const Setting s{.name = "", .tokens = 20, .head_dim = 32, .v_dim = 32, .type = DType::q8_0};
  Problem problem(s);
  const std::vector<float> before = problem.run(kernels_baseline(), s.tokens, s.group);
  problem.spoil_value(11, 1e8F);  // too much for a scale in half precision
  const std::size_t row = s.group * s.v_dim;
  for (const Isa isa : available_isas()) {
    const std::vector<float> after = problem.run(kernels_for(isa), s.tokens, s.group);
    for (std::size_t i = 0; i < after.size(); ++i) {
      if (i < 11 * row)
        ASSERT_EQ(after[i], before[i]) << i << ", " << to_string(isa);
      else
        ASSERT_FALSE(std::isfinite(after[i])) << i << ", " << to_string(isa);
    }
  }
}

}  // namespace
}  // namespace quipu::backends
