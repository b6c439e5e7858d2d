// Norms, elementwise ops and RoPE of the CPU backend against the reference.
#include <gtest/gtest.h>

#include <cmath>

#include "cpu_backends.hpp"
#include "harness.hpp"

namespace quipu::test {
namespace {

using graph::Activation;
using graph::Builder;
using graph::Value;
using Inputs = std::span<const Value>;

/// Compares on every instruction set and number of threads, for several counts of rows; rows must not depend
/// on their company, nor results on the instruction set.
void expect_like_reference(const OpCase& op, std::int32_t max_rows, Tolerance tolerance,
                           const std::string& name, std::int32_t first_position = 0) {
  const auto sequence_of = [&](std::int32_t rows) {
    BatchSequence sequence = whole_sequence(rows);
    sequence.first_position = first_position;
    return sequence;
  };
  const BatchSequence whole = sequence_of(max_rows);
  OpProgram reference(op, {backends::make_reference_backend()}, max_rows);
  const std::vector<float> want = reference.run({&whole, 1});
  std::vector<float> first;
  for (const CpuVariant& cpu : all_cpus()) {
    OpProgram program(op, {cpu.backend}, max_rows);
    ASSERT_EQ(program.program().placement()[op.inputs.size()], 0U);
    const std::vector<float> got = program.run({&whole, 1});
    EXPECT_EQ(difference(got, want, tolerance), "") << name << ", " << cpu.name;
    if (first.empty()) first = got;
    EXPECT_EQ(byte_difference(got, first), "") << name << ", " << cpu.name << " against baseline";
    for (const std::int32_t rows : {1, 3, 17}) {
      if (rows > max_rows) break;
      const BatchSequence part = sequence_of(rows);
      const std::span<const float> prefix(got.data(), static_cast<std::size_t>(rows * program.width()));
      EXPECT_EQ(byte_difference(program.run({&part, 1}), prefix), "")
          << name << ", " << rows << " rows, " << cpu.name;
    }
  }
}

constexpr std::int64_t kWidths[] = {1, 5, 7, 16, 33, 64, 100, 576};

TEST(CpuOps, NormsAreLikeTheReference) {
  for (const std::int64_t width : kWidths) {
    const Weight weight = random_weight(DType::f32, width, 1, 2),
                 bias = random_weight(DType::f16, width, 1, 3);
    Table x = random_table(20, width, 4);
    for (std::int64_t i = 0; i < width; ++i) x.values[static_cast<std::size_t>(5 * width + i)] = 0;
    const std::string name = "width " + std::to_string(width);
    // A mean of n squares in float is off by some n / 16 roundings at most, of which the root keeps half.
    const double relative = 0x1p-24 * (static_cast<double>(width) / 32 + 8);
    expect_like_reference({{x}, [&](Builder& g, Inputs in) { return g.rms_norm(in[0], weight.view, 1e-5F); }},
                          20, {1e-7, relative}, "rms " + name);
    // Centring cancels: what is left is off by roundings of the mean, up to 8, over a spread of about 1 or,
    // where a row has one element, over sqrt(eps).
    const double absolute = 8 * relative * (width == 1 ? 300 : 10);
    expect_like_reference(
        {{x}, [&](Builder& g, Inputs in) { return g.layer_norm(in[0], weight.view, bias.view, 1e-5F); }}, 20,
        {absolute, relative}, "layer " + name);
    expect_like_reference(
        {{x}, [&](Builder& g, Inputs in) { return g.layer_norm(in[0], weight.view, std::nullopt, 1e-5F); }},
        20, {absolute, relative}, "layer without bias " + name);
  }
}

TEST(CpuOps, NormsOfHeadsAreLikeTheReference) {
  for (const std::int64_t head : {3, 16, 20}) {
    const Weight weight = random_weight(DType::bf16, head, 1, 2);
    expect_like_reference({{random_table(20, 6 * head, 4)},
                           [&](Builder& g, Inputs in) { return g.rms_norm(in[0], weight.view, 1e-6F); }},
                          20, {1e-7, 1e-6}, "heads of " + std::to_string(head));
  }
}

TEST(CpuOps, ActivationsAreLikeTheReference) {
  for (std::uint8_t kind = 0; kind <= static_cast<std::uint8_t>(Activation::tanh); ++kind) {
    const auto activation = static_cast<Activation>(kind);
    for (const std::int64_t width : {1, 7, 33, 100}) {
      Table x = random_table(20, width, 5);
      for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] *= i % 3 == 0 ? 12.0F : 1.0F;
      const Table up = random_table(20, width, 6);
      const std::string name = "activation " + std::to_string(kind) + " width " + std::to_string(width);
      // Polynomials of about float precision; 1 + tanh and the like cancel for large negative values.
      expect_like_reference({{x}, [&](Builder& g, Inputs in) { return g.activate(in[0], activation); }}, 20,
                            {2e-6, 1e-6}, name);
      expect_like_reference({{x, up}, [&](Builder& g, Inputs in) { return g.glu(in[0], in[1], activation); }},
                            20, {1.6e-5, 1e-6}, "glu " + name);
    }
  }
}

TEST(CpuOps, ActivationsOfExtremesAreLikeTheReference) {
  const float big = 3e38F, inf = HUGE_VALF;
  const Table x{14, {0, -0.0F, 1e-30F, -1e-30F, 88, -88, 104, -104, 700, -700, big, -big, inf, -inf}};
  for (const Activation activation :
       {Activation::relu, Activation::sigmoid, Activation::tanh, Activation::silu, Activation::gelu,
        Activation::gelu_tanh, Activation::gelu_quick}) {
    // x * sigmoid(x) at minus infinity is 0 times infinity by the formula: leave that one out.
    Table some = x;
    if (activation != Activation::relu && activation != Activation::sigmoid && activation != Activation::tanh)
      some.values[13] = -big;
    expect_like_reference({{some}, [&](Builder& g, Inputs in) { return g.activate(in[0], activation); }}, 1,
                          {2e-6, 1e-6},
                          "extremes of activation " + std::to_string(static_cast<int>(activation)));
  }
}

TEST(CpuOps, SumsAndProductsAreExact) {
  for (const std::int64_t width : kWidths) {
    const Table a = random_table(20, width, 7), b = random_table(20, width, 8);
    const std::string name = "width " + std::to_string(width);
    expect_like_reference({{a, b}, [](Builder& g, Inputs in) { return g.add(in[0], in[1]); }}, 20, {},
                          "add " + name);
    expect_like_reference({{a, b}, [](Builder& g, Inputs in) { return g.mul(in[0], in[1]); }}, 20, {},
                          "mul " + name);
    expect_like_reference({{a}, [](Builder& g, Inputs in) { return g.scale(in[0], 0.3F); }}, 20, {},
                          "scale " + name);
  }
}

TEST(CpuOps, AVectorIsAddedToEveryRow) {
  for (const std::int64_t width : kWidths) {
    const Weight vector = random_weight(DType::f32, width, 1, 3);
    expect_like_reference({{random_table(20, width, 7)},
                           [&](Builder& g, Inputs in) { return g.add_vector(in[0], vector.view); }},
                          20, {}, "width " + std::to_string(width));
  }
}

/// Three sequences of one batch: factor 0.5, no adapters at all, factor 0 for the first adapter and 2 for the
/// second. By hand: x + 0.5 * 3 d, x, x + 2 * 0.25 d.
TEST(CpuOps, EachSequenceTakesAdaptersByItsOwnFactors) {
  for (const std::int64_t width : kWidths) {
    const Table x = random_table(7, width, 7), d = random_table(7, width, 8);
    const OpCase op{{x, d}, [](Builder& g, Inputs in) {
                      const Value first = g.add_adapted(in[0], in[1], 0, 3);
                      return g.add_adapted(first, in[1], 1, 0.25F);
                    }};
    const BatchSequence batch[] = {
        {{0, 1, 2}, 0, {0}, {0.5F, 0}}, {{3, 4}, 0, {1}}, {{5, 6}, 0, {2}, {0, 2}}};
    std::vector<float> want;
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) / width;
      const double factor = row < 3 ? 1.5 : row < 5 ? 0 : 0.5;
      want.push_back(static_cast<float>(x.values[i] + factor * d.values[i]));
    }
    OpProgram reference(op, {backends::make_reference_backend()}, 7);
    EXPECT_EQ(byte_difference(reference.run(batch), want), "") << width;
    for (const CpuVariant& cpu : all_cpus()) {
      OpProgram program(op, {cpu.backend}, 7);
      EXPECT_EQ(byte_difference(program.run(batch), want), "") << width << ", " << cpu.name;
      EXPECT_EQ(byte_difference(program.run({batch + 2, 1}),
                                std::span(want).subspan(5 * static_cast<std::size_t>(width))),
                "")
          << width << ", alone, " << cpu.name;
    }
  }
}

TEST(CpuOps, RopeIsLikeTheReferenceNearAndFar) {
  for (const bool neox : {false, true})
    for (const std::int64_t head_dim : {8, 10, 64, 80})
      for (const std::int64_t turned : {head_dim, head_dim / 2 / 2 * 2})
        for (const std::int32_t first : {0, 60, 131000}) {
          std::vector<double> turns;
          for (std::int64_t i = 0; i < turned / 2; ++i)
            turns.push_back(std::pow(10000.0, -static_cast<double>(2 * i) / static_cast<double>(turned)));
          const auto inv_freq = std::make_shared<const std::vector<double>>(turns);
          const OpCase op{{random_table(20, 3 * head_dim, 9)}, [&](Builder& g, Inputs in) {
                            return g.rope({.x = in[0],
                                           .heads = 3,
                                           .head_dim = head_dim,
                                           .neox = neox,
                                           .inv_freq = inv_freq,
                                           .magnitude = first == 60 ? 1.3F : 1.0F});
                          }};
          // Angles are in double; sine, cosine, two products and the sum each round once, of values up to 8
          // * 1.3.
          expect_like_reference(op, 20, {3e-6, 3e-7},
                                "neox " + std::to_string(neox) + " head " + std::to_string(head_dim) +
                                    " turned " + std::to_string(turned) + " from " + std::to_string(first),
                                first);
        }
}

TEST(CpuOps, GatherTakesTheRowsAskedFor) {
  const OpCase op{{random_table(30, 33, 1)}, [](Builder& g, Inputs in) { return g.scale(in[0], 1); }};
  for (const CpuVariant& cpu : all_cpus()) {
    OpProgram program(op, {cpu.backend}, 30);
    const BatchSequence sequence = whole_sequence(30);
    const std::vector<float> got = program.run({&sequence, 1}, nullptr, {0, 11, 29});
    for (const std::size_t i : {0U, 1U, 2U}) {
      const std::size_t row = std::vector<std::size_t>{0, 11, 29}[i];
      EXPECT_EQ(byte_difference({got.data() + 33 * i, 33}, {op.inputs[0].values.data() + 33 * row, 33}), "")
          << cpu.name;
    }
    EXPECT_TRUE(program.run({&sequence, 1}, nullptr, {}).empty());
  }
}

}  // namespace
}  // namespace quipu::test
