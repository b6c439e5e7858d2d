// Mixture of experts, and the other ops of single families: the reference backend against numpy
// (tools/goldens/make_op_goldens.py) and hand computation, the CPU backend against the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "cpu_backends.hpp"
#include "formats/gguf/gguf.hpp"
#include "harness.hpp"
#include "op_goldens.hpp"
#include "support.hpp"

namespace quipu::test {
namespace {

using graph::Activation;
using graph::Builder;
using graph::Value;
using Inputs = std::span<const Value>;

class Experts : public testing::Test, protected OpGoldens {
 protected:
  /// The reference within `tight` of numpy, the CPU backend within `loose`.
  void expect(const std::string& name, const OpCase& op, Tolerance tight, Tolerance loose) {
    const auto rows = static_cast<std::int32_t>(op.inputs[0].rows());
    EXPECT_EQ(
        difference(run_rows(op, {backends::make_reference_backend()}, rows), values(name + ".y"), tight), "")
        << name;
    for (const CpuVariant& cpu : all_cpus()) {
      const std::vector<float> got = run_rows(op, {cpu.backend}, rows);
      EXPECT_EQ(difference(got, values(name + ".y"), loose), "") << name << ", " << cpu.name;
      const std::vector<float> one = run_rows(op, {cpu.backend}, 1);
      EXPECT_EQ(byte_difference(one, {got.data(), one.size()}), "") << name << " alone, " << cpu.name;
    }
  }
};

graph::MoeRoute softmax_route(Value logits, std::int64_t used) {
  graph::MoeRoute op;
  op.logits = logits;
  op.used = used;
  return op;
}

TEST_F(Experts, RoutesAgreeWithNumpy) {
  for (const std::string& name : golden().metadata().try_strings("route.cases")->strings()) {
    const std::string key = "route." + name;
    const auto number = [&](const char* what) { return golden().metadata().get_int(key + "." + what); };
    const OpCase op{{table(key + ".x")}, [&](Builder& g, Inputs in) {
                      graph::MoeRoute route = softmax_route(in[0], number("used"));
                      if (golden().find_tensor(key + ".bias") != nullptr) route.bias = tensor(key + ".bias");
                      route.gating = static_cast<graph::Gating>(number("gating"));
                      route.renormalise = golden().metadata().get_bool(key + ".renormalise");
                      route.scale = static_cast<float>(golden().metadata().get_float(key + ".scale"));
                      route.groups = number("groups");
                      route.groups_used = number("groups_used");
                      route.group_top = number("group_top");
                      return g.moe_route(route);
                    }};
    expect(key, op, kOneRounding, {1e-7, 2e-6});
  }
}

TEST_F(Experts, ALayerOfExpertsAgreesWithNumpy) {
  const OpCase op{{table("experts.x"), table("experts.logits")}, [&](Builder& g, Inputs in) {
                    graph::MoeRoute settings = softmax_route(in[1], 2);
                    settings.renormalise = true;
                    const Value route = g.moe_route(settings);
                    const auto part = [&](Value x, const std::string& name) {
                      return g.moe_linear(x, route, tensor("experts." + name),
                                          tensor("experts." + name + "_bias"));
                    };
                    const Value gated = g.glu(part(in[0], "gate"), part(in[0], "up"), Activation::silu);
                    return g.moe_combine(part(gated, "down"), route);
                  }};
  expect("experts", op, {4e-6, 1e-6}, {4e-5, 1e-5});
}

TEST_F(Experts, AMatrixAHeadAgreesWithNumpy) {
  expect("head_linear",
         {{table("head_linear.x")},
          [&](Builder& g, Inputs in) { return g.head_linear(in[0], tensor("head_linear.weight")); }},
         {4e-7, 1.2e-7}, {4e-6, 1e-6});
}

TEST_F(Experts, NormsWithWeightsOfEachHeadAgreeWithNumpy) {
  const auto eps = static_cast<float>(golden().metadata().get_float("norm.eps"));
  const TensorView weight = tensor("own_heads.weight"), bias = tensor("own_heads.bias");
  expect("own_heads.rms",
         {{table("own_heads.x")}, [&](Builder& g, Inputs in) { return g.rms_norm(in[0], weight, eps); }},
         kOneRounding, {1e-6, 1e-6});
  expect(
      "own_heads.layer",
      {{table("own_heads.x")}, [&](Builder& g, Inputs in) { return g.layer_norm(in[0], weight, bias, eps); }},
      {1e-7, 1.2e-7}, {4e-6, 1e-6});
}

TEST_F(Experts, AClampedAndShiftedGluAgreesWithNumpy) {
  expect("clamped_glu",
         {{table("clamped_glu.gate"), table("clamped_glu.up")},
          [](Builder& g, Inputs in) { return g.glu(in[0], in[1], Activation::gelu_quick, 7, 1); }},
         {1e-7, 1.2e-7}, {2e-5, 2e-6});
}

TEST_F(Experts, XieluAgreesWithNumpy) {
  expect("xielu",
         {{table("xielu.x")},
          [](Builder& g, Inputs in) {
            return g.xielu({.x = in[0], .alpha_p = 0.9F, .alpha_n = 1.3F, .beta = 0.4F, .eps = -1e-6F});
          }},
         {1e-7, 1.2e-7}, {1e-6, 1e-6});
}

TEST_F(Experts, WeightsTimesAFactorOfEachExpertAgreeWithNumpy) {
  expect("expert_scale",
         {{table("expert_scale.x")},
          [&](Builder& g, Inputs in) {
            graph::MoeRoute route = softmax_route(in[0], 3);
            route.renormalise = true;
            route.expert_scale = tensor("expert_scale.factors");
            return g.moe_route(route);
          }},
         {1e-7, 1.2e-7}, {1e-7, 2e-6});
}

TEST_F(Experts, SumsOfPartsAgreeWithNumpy) {
  expect(
      "mix",
      {{table("mix.x"), table("mix.weights")}, [](Builder& g, Inputs in) { return g.mix(in[0], in[1], 3); }},
      {1e-7, 1.2e-7}, {2e-6, 1e-6});
}

TEST_F(Experts, TheLargestOfANormalRowAgreeWithNumpy) {
  expect("gaussian_top_k",
         {{table("gaussian_top_k.x")}, [](Builder& g, Inputs in) { return g.gaussian_top_k(in[0], 0.7F); }},
         {1e-7, 1.2e-7}, {4e-6, 1e-6});
}

TEST_F(Experts, ProductsWithAVectorAgreeWithNumpy) {
  expect("mul_vector",
         {{table("mul_vector.x")},
          [&](Builder& g, Inputs in) { return g.mul_vector(in[0], tensor("mul_vector.vector")); }},
         kOneRounding, kOneRounding);
}

TEST_F(Experts, RotationBehindTheFirstElementsAgreesWithNumpy) {
  const auto inv_freq = std::make_shared<const std::vector<double>>(
      std::vector<double>{1, std::pow(10000.0, -0.25), 0.01, std::pow(10000.0, -0.75)});
  expect("rope_behind",
         {{table("rope_behind.x")},
          [&](Builder& g, Inputs in) {
            return g.rope(
                {.x = in[0], .heads = 2, .head_dim = 14, .neox = false, .inv_freq = inv_freq, .first = 4});
          }},
         {1e-7, 2e-7}, {1e-6, 1e-6});
}

TEST_F(Experts, SlicesJoinsFactorsAndPositionsByHand) {
  const Table a{6, {1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16}}, b{2, {7, 8, 17, 18}}, f{1, {2, -1}};
  BackendList all{backends::make_reference_backend()};
  for (const CpuVariant& cpu : all_cpus()) all.push_back(cpu.backend);
  const std::vector<float> learned{0.5F, 1, 1.5F, 2, 2.5F, 3};
  TensorView positions;
  positions.dtype = DType::f32;
  positions.shape = {2, 3, 1, 1};
  positions.data = reinterpret_cast<const std::byte*>(learned.data());
  for (const auto& backend : all) {
    const auto run = [&](const std::vector<Table>& in, auto build) {
      return run_rows({in, build}, {backend}, 2);
    };
    EXPECT_EQ(run({a}, [](Builder& g, Inputs x) { return g.slice(x[0], 2, 1, 2); }),
              (std::vector<float>{2, 3, 5, 6, 12, 13, 15, 16}));
    EXPECT_EQ(run({a, b}, [](Builder& g, Inputs x) { return g.concat(x[0], x[1], 2); }),
              (std::vector<float>{1, 2, 3, 7, 4, 5, 6, 8, 11, 12, 13, 17, 14, 15, 16, 18}));
    EXPECT_EQ(run({a, b}, [](Builder& g, Inputs x) { return g.concat(x[0], x[1], 3, true); }),
              (std::vector<float>{1,  2,  7,  8,  3,  4,  7,  8,  5,  6,  7,  8,
                                  11, 12, 17, 18, 13, 14, 17, 18, 15, 16, 17, 18}));
    EXPECT_EQ(run({b, f}, [](Builder& g, Inputs x) { return g.mul(x[0], x[1]); }),
              (std::vector<float>{14, 16, -17, -18}));
    // 1 + 0.5 ln 1, ln 2, ln 2, ln 3 at positions 1, 2, 3, 4 of lengths of 2.
    OpProgram growing({{}, [](Builder& g, Inputs) { return g.position_temperature(0.5F, 2); }}, {backend}, 4);
    const BatchSequence four{{0, 0, 0, 0}, 1, {0}};
    EXPECT_EQ(difference(growing.run({&four, 1}), std::vector<float>{1, 1.3465736F, 1.3465736F, 1.5493061F},
                         {1e-7, 1e-7}),
              "");
    // The same a position earlier.
    OpProgram ahead({{}, [](Builder& g, Inputs) { return g.position_temperature(0.5F, 2, 1); }}, {backend},
                    4);
    const BatchSequence from_start{{0, 0, 0, 0}, 0, {0}};
    EXPECT_EQ(ahead.run({&from_start, 1}), growing.run({&four, 1}));
    OpProgram program({{}, [&](Builder& g, Inputs) { return g.embed_positions(positions); }}, {backend}, 4);
    const BatchSequence late{{0, 0}, 1, {0}};
    EXPECT_EQ(program.run({&late, 1}), (std::vector<float>{1.5F, 2, 2.5F, 3}));
    const BatchSequence beyond{{0, 0}, 2, {0}};
    EXPECT_THROW(program.run({&beyond, 1}), Error);
  }
}

// ---- each pair has the bytes of its expert's own linear ----

struct Layer {
  DType dtype;
  std::int64_t k, n, experts, used;
  bool parts;  ///< every pair has a row of its own
  std::string name() const {
    return std::string(to_string(dtype)) + " k " + std::to_string(k) + " n " + std::to_string(n) +
           (parts ? " parts" : " rows");
  }
};

/// Rows of the linear of expert `e` alone, on the j-th part of x.
std::vector<float> linear_of(const Layer& l, const Table& x, const TensorView& weight, const TensorView& bias,
                             std::int64_t e, std::int64_t j, const BackendList& backends) {
  TensorView matrix = weight, row = bias;
  matrix.shape[2] = 1;
  matrix.data += static_cast<std::size_t>(e * l.n) * weight.row_bytes();
  row.shape[1] = 1;
  row.data += static_cast<std::size_t>(e) * bias.row_bytes();
  return run_rows({{x},
                   [&](Builder& g, Inputs in) {
                     const Value part = l.parts ? g.slice(in[0], 1, j * l.k, l.k) : in[0];
                     return g.linear(part, matrix, row);
                   }},
                  backends, static_cast<std::int32_t>(x.rows()));
}

TEST(CpuExperts, EachPairHasTheBytesOfItsExpertsOwnLinearForAnyBatch) {
  const Layer layers[] = {
      {DType::f32, 33, 7, 5, 2, false},   {DType::f32, 33, 7, 5, 2, true},
      {DType::f16, 40, 20, 4, 3, false},  {DType::bf16, 48, 33, 6, 2, false},
      {DType::bf16, 48, 33, 6, 2, true},  {DType::q8_0, 64, 40, 6, 2, false},
      {DType::q4_0, 96, 33, 5, 2, true},  {DType::mxfp4, 64, 48, 8, 4, false},
      {DType::mxfp4, 64, 48, 8, 4, true}, {DType::q4_k, 256, 17, 3, 2, false},
  };
  for (const Layer& l : layers) {
    constexpr std::int32_t kRows = 70;
    const Weight weight = random_weight(l.dtype, l.k, l.n * l.experts, 1),
                 bias = random_weight(DType::f32, l.n, l.experts, 2);
    TensorView matrices = weight.view, biases = bias.view;
    matrices.shape = {l.k, l.n, l.experts, 1};
    const Table x = random_table(kRows, l.parts ? l.k * l.used : l.k, 3),
                logits = random_table(kRows, l.experts, 4);
    const OpCase op{{x, logits}, [&](Builder& g, Inputs in) {
                      const Value route = g.moe_route(softmax_route(in[1], l.used));
                      return g.moe_linear(in[0], route, matrices, biases);
                    }};
    const OpCase choice{{logits},
                        [&](Builder& g, Inputs in) { return g.moe_route(softmax_route(in[0], l.used)); }};
    const std::vector<float> chosen = run_rows(choice, {backends::make_reference_backend()}, kRows);
    for (const CpuVariant& cpu : all_cpus()) {
      const std::vector<float> all = run_rows(op, {cpu.backend}, kRows);
      for (std::int64_t e = 0; e < l.experts; ++e)
        for (std::int64_t j = 0; j < l.used; ++j) {
          const std::vector<float> own = linear_of(l, x, matrices, biases, e, j, {cpu.backend});
          for (std::int64_t t = 0; t < kRows; ++t) {
            if (chosen[static_cast<std::size_t>(t * 2 * l.used + j)] != static_cast<float>(e)) continue;
            ASSERT_EQ(byte_difference({all.data() + (t * l.used + j) * l.n, static_cast<std::size_t>(l.n)},
                                      {own.data() + t * l.n, static_cast<std::size_t>(l.n)}),
                      "")
                << l.name() << ", row " << t << ", " << cpu.name;
          }
        }
      for (const std::int32_t rows : {1, 2, 9}) {
        const std::vector<float> few = run_rows(op, {cpu.backend}, rows);
        EXPECT_EQ(byte_difference(few, {all.data(), few.size()}), "")
            << l.name() << ", " << rows << ", " << cpu.name;
      }
    }
  }
}

TEST(CpuExperts, OneTokenAndFiveHundredTwelveGiveTheSameBytesAndAgreeWithTheReference) {
  constexpr std::int32_t kRows = 512;
  constexpr std::int64_t kWidth = 64, kInner = 96, kCount = 16;
  const Weight router = random_weight(DType::f32, kWidth, kCount, 9);
  const Weight gate = random_weight(DType::q4_0, kWidth, kInner * kCount, 10),
               up = random_weight(DType::q8_0, kWidth, kInner * kCount, 11),
               down = random_weight(DType::q4_0, kInner, kWidth * kCount, 12);
  const auto matrices = [&](const Weight& w, std::int64_t k, std::int64_t n) {
    TensorView view = w.view;
    view.shape = {k, n, kCount, 1};
    return view;
  };
  const OpCase op{{random_table(kRows, kWidth, 13)}, [&](Builder& g, Inputs in) {
                    graph::MoeRoute settings = softmax_route(g.linear(in[0], router.view), 4);
                    settings.renormalise = true;
                    const Value route = g.moe_route(settings);
                    const Value gated =
                        g.glu(g.moe_linear(in[0], route, matrices(gate, kWidth, kInner)),
                              g.moe_linear(in[0], route, matrices(up, kWidth, kInner)), Activation::silu);
                    return g.moe_combine(g.moe_linear(gated, route, matrices(down, kInner, kWidth)), route);
                  }};
  const std::vector<float> want = run_rows(op, {backends::make_reference_backend()}, kRows);
  std::vector<float> first;
  for (const CpuVariant& cpu : all_cpus()) {
    const std::vector<float> got = run_rows(op, {cpu.backend}, kRows);
    if (first.empty()) {
      first = got;
      double dot = 0, a = 0, b = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        dot += static_cast<double>(got[i]) * want[i];
        a += static_cast<double>(got[i]) * got[i];
        b += static_cast<double>(want[i]) * want[i];
      }
      EXPECT_GT(dot / std::sqrt(a * b), 0.99999);
      EXPECT_NEAR(std::sqrt(a / b), 1, 1e-3);
    }
    EXPECT_EQ(byte_difference(got, first), "") << cpu.name;
    OpProgram program(op, {cpu.backend}, 1);
    for (const std::int32_t token : {0, 1, 77, 511}) {
      const BatchSequence alone{{token}, 0, {0}};
      EXPECT_EQ(byte_difference(program.run({&alone, 1}),
                                {got.data() + token * kWidth, static_cast<std::size_t>(kWidth)}),
                "")
          << "token " << token << ", " << cpu.name;
    }
  }
}

TEST(CpuExperts, RouterScoresThatAreNoNumbersStillNameExpertsThatExist) {
  const Table logits{4, {NAN, NAN, NAN, NAN, -INFINITY, -INFINITY, -INFINITY, -INFINITY, NAN, 1, NAN, 0}};
  for (const CpuVariant& cpu : all_cpus()) {
    const std::vector<float> got =
        run_rows({{logits}, [](Builder& g, Inputs in) { return g.moe_route(softmax_route(in[0], 3)); }},
                 {cpu.backend}, 3);
    for (std::size_t row = 0; row < 3; ++row) {
      std::vector<float> chosen(got.begin() + static_cast<std::ptrdiff_t>(6 * row),
                                got.begin() + static_cast<std::ptrdiff_t>(6 * row + 3));
      std::sort(chosen.begin(), chosen.end());
      EXPECT_EQ(std::adjacent_find(chosen.begin(), chosen.end()), chosen.end()) << cpu.name;
      EXPECT_GE(chosen.front(), 0) << cpu.name;
      EXPECT_LE(chosen.back(), 3) << cpu.name;
    }
  }
}

}  // namespace
}  // namespace quipu::test
