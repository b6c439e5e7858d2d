// Linear of the CPU backend against the reference: every dtype, odd shapes, every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/philox.hpp"
#include "cpu_backends.hpp"
#include "harness.hpp"

namespace quipu::test {
namespace {

using graph::Builder;
using graph::Value;

bool is_quantized(DType dtype) { return info(dtype).block_size > 1; }

/// Activations that the 12-bit quantisation (docs/numerics.md) keeps exactly: per group of 256 a power of two
/// times integers up to 2039, one of which is 2039.
Table grid_table(std::int64_t rows, std::int64_t width, std::uint64_t seed) {
  Table table{width, std::vector<float>(static_cast<std::size_t>(rows * width))};
  for (std::size_t i = 0; i < table.values.size(); ++i) {
    const auto bits =
        philox4x32({static_cast<std::uint32_t>(i), 1, 0, 0}, {static_cast<std::uint32_t>(seed), 7});
    const int q = i % 32 == seed % 32 ? 2039 : static_cast<int>(bits[0] % 4079) - 2039;
    const std::size_t row = i / static_cast<std::size_t>(width), column = i % static_cast<std::size_t>(width);
    const auto group = static_cast<std::uint32_t>(row << 16 | column / 256);
    const auto scale = philox4x32({group, 2, 0, 0}, {static_cast<std::uint32_t>(seed), 7});
    table.values[i] = std::ldexp(static_cast<float>(q), -9 - static_cast<int>(scale[0] % 5));
  }
  return table;
}

struct Shape {
  DType dtype;
  std::int64_t k, n;
  bool bias;
  std::string name() const {
    return std::string(to_string(dtype)) + " k " + std::to_string(k) + " n " + std::to_string(n);
  }
};

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const DType dtype : weight_dtypes()) {
    const std::uint32_t block = info(dtype).block_size;
    const std::vector<std::int64_t> widths = block == 256  ? std::vector<std::int64_t>{256, 768}
                                             : block == 32 ? std::vector<std::int64_t>{32, 96, 576}
                                                           : std::vector<std::int64_t>{1, 7, 33, 576};
    for (const std::int64_t k : widths)
      for (const std::int64_t n : {1, 7, 16, 33}) all.push_back({dtype, k, n, (k + n) % 2 == 0});
    // More than the chunk of K that kernels of many rows take at a time.
    all.push_back({dtype, block == 256 ? 1280 : block == 32 ? 1056 : 1100, 21, true});
  }
  return all;
}

struct Sample {
  Weight weight, bias;
  Table x;
  OpCase op;
};
Sample make_sample(const Shape& shape, Table x) {
  Sample s{random_weight(shape.dtype, shape.k, shape.n, 31),
           random_weight(DType::f32, shape.n, 1, 32),
           std::move(x),
           {}};
  s.op = {{s.x}, [weight = s.weight, bias = s.bias, use = shape.bias](Builder& b, std::span<const Value> in) {
            return b.linear(in[0], weight.view, use ? std::optional<TensorView>(bias.view) : std::nullopt);
          }};
  return s;
}

/// What float arithmetic may cost, for each output: k / 16 or k / 32 steps whose partial sums stay below the
/// sum of |x w|. A weight counts with twice the largest of its row: a format with minima computes it as the
/// difference of two such numbers.
double rounding_bound(const Sample& s, std::int64_t row, std::int64_t column) {
  double largest = 0, sum = 0;
  for (const float w : s.weight.decode_row(column))
    largest = std::max(largest, std::abs(static_cast<double>(w)));
  const std::int64_t k = s.x.width;
  for (std::int64_t i = 0; i < k; ++i)
    sum += std::abs(static_cast<double>(s.x.values[static_cast<std::size_t>(row * k + i)]));
  // BF16 weights on AMX: activations in two bfloat16 planes are off by 2^-18 of themselves.
  const double planes = s.weight.view.dtype == DType::bf16 ? 0x1p-17 * sum * largest : 0;
  return (static_cast<double>(k) / 16 + 8) * 0x1p-23 * sum * 2 * largest + planes + 1e-7;
}

/// What quantising the activations may cost: each is off by at most half a unit of its group, max / 2039. (A
/// little more, for max / 2039 is rounded itself.)
double quantisation_bound(const Sample& s, std::int64_t row, std::int64_t column) {
  const std::vector<float> w = s.weight.decode_row(column);
  const float* x = s.x.values.data() + row * s.x.width;
  double bound = 0;
  for (std::size_t g = 0; g < w.size(); g += 256) {
    double largest = 0, weights = 0;
    for (std::size_t i = g; i < std::min(g + 256, w.size()); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(x[i])));
      weights += std::abs(static_cast<double>(w[i]));
    }
    bound += 0.501 * largest / 2039 * weights;
  }
  return bound;
}

std::vector<double> bounds(const Sample& s, std::int64_t rows, std::int64_t n, bool quantised_activations) {
  std::vector<double> all;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < n; ++column)
      all.push_back(rounding_bound(s, row, column) +
                    (quantised_activations ? quantisation_bound(s, row, column) : 0.0));
  return all;
}

constexpr std::int32_t kLinearRows = 70;  // enough for the kernels of many rows

/// Runs table rows 0 … rows-1, then each count of `counts` as a prefix, and expects the same bytes for a row
/// whatever its company. Returns the whole.
std::vector<float> run_and_compare_prefixes(const OpCase& op, const CpuVariant& cpu,
                                            const std::string& name) {
  OpProgram program(op, {cpu.backend}, kLinearRows);
  const BatchSequence sequence = whole_sequence(kLinearRows, {0, 1});
  const std::vector<float> all = program.run({&sequence, 1});
  for (const std::int32_t rows : {1, 3, 17}) {
    const BatchSequence part = whole_sequence(rows, {0, 1});
    const std::span<const float> want(all.data(), static_cast<std::size_t>(rows * program.width()));
    EXPECT_EQ(byte_difference(program.run({&part, 1}), want), "")
        << name << ", " << rows << " rows, " << cpu.name;
  }
  return all;
}

TEST(CpuLinear, EqualsTheReferenceWhereQuantisationIsLosslessOnEveryIsa) {
  for (const Shape& shape : shapes()) {
    const Sample s =
        make_sample(shape, grid_table(kLinearRows, shape.k, static_cast<std::uint64_t>(shape.k + shape.n)));
    const std::vector<float> want = run_rows(s.op, {backends::make_reference_backend()}, kLinearRows);
    const std::vector<double> allowed = bounds(s, kLinearRows, shape.n, false);
    for (const CpuVariant& cpu : cpu_by_isa()) {
      const std::vector<float> got = run_and_compare_prefixes(s.op, cpu, shape.name());
      EXPECT_EQ(difference(got, want, allowed), "") << shape.name() << ", " << cpu.name;
    }
  }
}

TEST(CpuLinear, StaysWithinTheQuantisationErrorAndGivesTheSameBytesOnEveryIsa) {
  for (const Shape& shape : shapes()) {
    const Sample s = make_sample(shape, random_table(kLinearRows, shape.k, 5));
    const std::vector<float> want = run_rows(s.op, {backends::make_reference_backend()}, kLinearRows);
    const std::vector<double> allowed = bounds(s, kLinearRows, shape.n, is_quantized(shape.dtype));
    std::vector<float> first;
    for (const CpuVariant& cpu : cpu_by_isa()) {
      const std::vector<float> got = run_and_compare_prefixes(s.op, cpu, shape.name());
      EXPECT_EQ(difference(got, want, allowed), "") << shape.name() << ", " << cpu.name;
      if (first.empty()) first = got;
      // The one exception of docs/numerics.md.
      if (shape.dtype == DType::bf16 && cpu.name.starts_with("amx")) continue;
      EXPECT_EQ(byte_difference(got, first), "")
          << shape.name() << ", " << cpu.name << " against " << cpu_by_isa()[0].name;
    }
  }
}

/// Kernels take rows in blocks of several sizes: all ways to come to a number of them.
TEST(CpuLinear, GivesARowTheSameBytesAmongAnyNumberOfOthers) {
  for (const DType dtype : weight_dtypes()) {
    const Sample s = make_sample({dtype, 256, 21, true}, random_table(kLinearRows, 256, 11));
    for (const CpuVariant& cpu : cpu_by_isa()) {
      OpProgram program(s.op, {cpu.backend}, kLinearRows);
      const BatchSequence sequence = whole_sequence(kLinearRows, {0, 1});
      const std::vector<float> all = program.run({&sequence, 1});
      for (std::int32_t rows = 1; rows <= 40; ++rows) {
        const BatchSequence part = whole_sequence(rows, {0, 1});
        const std::span<const float> want(all.data(), static_cast<std::size_t>(rows * program.width()));
        EXPECT_EQ(byte_difference(program.run({&part, 1}), want), "")
            << to_string(dtype) << ", " << rows << " rows, " << cpu.name;
      }
    }
  }
}

TEST(CpuLinear, GivesTheSameBytesForAnyNumberOfThreads) {
  for (const DType dtype : weight_dtypes())
    for (const std::int64_t n : {5, 130}) {
      const Shape shape{dtype, 256, n, true};
      const Sample s = make_sample(shape, random_table(kLinearRows, shape.k, 6));
      std::vector<float> first;
      for (const CpuVariant& cpu : cpu_by_threads()) {
        const std::vector<float> got = run_and_compare_prefixes(s.op, cpu, shape.name());
        if (first.empty()) first = got;
        EXPECT_EQ(byte_difference(got, first), "") << shape.name() << ", " << cpu.name;
      }
    }
}

TEST(CpuLinear, GroupsOfZerosAndTinyAndHugeActivationsCostNothingButTheirOwnPrecision) {
  for (const DType dtype : weight_dtypes()) {
    const Shape shape{dtype, 256, 7, false};
    Table x = random_table(kLinearRows, shape.k, 8);
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      const std::size_t group = i / 32 % 8;
      if (group == 1) x.values[i] = 0;
      if (group == 3) x.values[i] *= 1e-38F;  // subnormal in part
      if (group == 5) x.values[i] *= 1e20F;
    }
    const Sample s = make_sample(shape, x);
    const std::vector<float> want = run_rows(s.op, {backends::make_reference_backend()}, kLinearRows);
    const std::vector<double> allowed = bounds(s, kLinearRows, shape.n, is_quantized(dtype));
    for (const CpuVariant& cpu : cpu_by_isa())
      EXPECT_EQ(difference(run_and_compare_prefixes(s.op, cpu, shape.name()), want, allowed), "")
          << shape.name() << ", " << cpu.name;
  }
}

TEST(CpuLinear, NaNAndInfinityInARowShowInThatRowOnly) {
  for (const DType dtype : weight_dtypes())
    for (const float bad : {std::nanf(""), HUGE_VALF}) {
      const Shape shape{dtype, 256, 7, false};
      const Sample clean = make_sample(shape, random_table(kLinearRows, shape.k, 9));
      Sample dirty = clean;
      for (const std::int64_t row : {2, 40})
        dirty.op.inputs[0].values[static_cast<std::size_t>(row * shape.k + 100)] = bad;
      for (const CpuVariant& cpu : cpu_by_isa()) {
        const std::vector<float> want = run_rows(clean.op, {cpu.backend}, kLinearRows);
        const std::vector<float> got = run_rows(dirty.op, {cpu.backend}, kLinearRows);
        for (std::int64_t row = 0; row < kLinearRows; ++row) {
          const std::size_t at = static_cast<std::size_t>(row * shape.n),
                            n = static_cast<std::size_t>(shape.n);
          if (row != 2 && row != 40) {
            ASSERT_EQ(byte_difference({got.data() + at, n}, {want.data() + at, n}), "")
                << shape.name() << " row " << row << ", " << cpu.name;
          } else {
            for (std::size_t i = 0; i < n; ++i)
              ASSERT_FALSE(std::isfinite(got[at + i])) << shape.name() << " row " << row << ", " << cpu.name;
          }
        }
      }
    }
}

TEST(CpuLinear, EmbedsTheDecodedRowsOfEveryDtype) {
  for (const DType dtype : weight_dtypes()) {
    const std::int64_t width = info(dtype).block_size == 1 ? 37 : 256;
    const Weight weight = random_weight(dtype, width, 9, 3);
    const OpCase op{{}, [&](Builder& b, std::span<const Value>) { return b.embed(weight.view); }};
    std::vector<float> want;
    for (std::int64_t row = 0; row < 9; ++row) {
      const std::vector<float> values = weight.decode_row(row);
      want.insert(want.end(), values.begin(), values.end());
    }
    for (const CpuVariant& cpu : all_cpus())
      EXPECT_EQ(byte_difference(run_rows(op, {cpu.backend}, 9), want), "")
          << to_string(dtype) << ", " << cpu.name;
  }
}

TEST(CpuLinear, TheMachinesIsaAndEachBelowItWereTried) {
  EXPECT_EQ(cpu_by_isa().size(), available_isas().size());
  for (std::size_t i = 0; i < cpu_by_isa().size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_NE(cpu_by_isa()[i].backend->devices()[0].description,
                cpu_by_isa()[j].backend->devices()[0].description);
}

}  // namespace
}  // namespace quipu::test
