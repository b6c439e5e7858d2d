// Attention on AMX tiles, emulated where the machine has none: the planes and sums that docs/numerics.md
// promises, worked out in double precision; close to AVX-512's; and the same bytes for a row in whatever
// company.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "backends/attention_problem.hpp"
#include "backends/cpu/kernels.hpp"
#include "backends/cpu_emulated.hpp"

#if defined(__x86_64__)
namespace quipu::backends {
namespace {

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
  // is within |q||k| 2^-15 / sqrt(d), here 1e-3 / 4 at most and a tenth of that on average. AVX-512 takes
  // queries and weights for quantised rows in 12 bits, which are within 2^-12 of the largest.
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
    EXPECT_LT(largest_difference(s), s.type == DType::q8_0 || s.type == DType::q4_0 ? 5e-3 : 1e-4) << s.name;
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
        attend_by_spans(scores, sums, [&](std::size_t begin, const std::vector<double>& weights) {
          for (std::size_t p = 0; p < weights.size(); ++p) {
            const std::vector<float> v = problem.value(static_cast<std::int64_t>(begin + p));
            for (std::size_t e = 0; e < s.v_dim; ++e)
              sums[e] += product(static_cast<float>(weights[p]), v[e]);
          }
        });
        double& worst = kind == 0 ? of_floats : kind == 1 ? of_planes : of_one_plane;
        for (std::size_t e = 0; e < s.v_dim; ++e)
          worst = std::max(worst, std::abs(sums[e] - got[(t * s.group + h) * s.v_dim + e]));
      }
    }
  EXPECT_LT(of_planes, 3e-6);
  EXPECT_GT(of_floats, 6e-6) << "the test cannot tell planes from floats";
  EXPECT_GT(of_one_plane, 1e-3) << "the test cannot tell two planes from one";
}

}  // namespace
}  // namespace quipu::backends
#endif
