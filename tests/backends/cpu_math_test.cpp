// The CPU kernels' own exp, tanh, sigmoid, silu, gelu and sincos against the C library in long double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "backends/cpu/kernels.hpp"
#include "backends/cpu/sincos.hpp"
#include "core/cpu_features.hpp"
#include "graph/graph.hpp"

namespace quipu::backends {
namespace {

using graph::Activation;

std::vector<const Kernels*> math_tables() {
  std::vector<const Kernels*> all;
  for (const Isa isa : available_isas()) all.push_back(&kernels_for(isa));
  return all;
}

/// -range … range in fine steps, and around zero by powers of two.
std::vector<float> points(float range) {
  std::vector<float> x;
  for (int i = -40000; i <= 40000; ++i) x.push_back(range * static_cast<float>(i) / 40000.0F);
  for (int e = -120; e < 0; ++e)
    for (const float sign : {-1.0F, 1.0F}) x.push_back(sign * std::ldexp(1.37F, e));
  return x;
}

struct Function {
  Activation kind;
  const char* name;
  long double (*exact)(long double);
  float range;
  double relative, of_x;  ///< |got - exact| <= relative * |exact| + of_x * |x| + the smallest subnormal
};

const Function kFunctions[] = {
    {Activation::sigmoid, "sigmoid", [](long double x) { return 1 / (1 + std::exp(-x)); }, 87.0F, 5e-7, 0},
    {Activation::tanh, "tanh", [](long double x) { return std::tanh(x); }, 20.0F, 5e-7, 0},
    {Activation::silu, "silu", [](long double x) { return x / (1 + std::exp(-x)); }, 80.0F, 5e-7, 0},
    {Activation::gelu, "gelu", [](long double x) { return x * std::erfc(-x / std::sqrt(2.0L)) / 2; }, 12.0F,
     4e-7, 2e-7},
    {Activation::gelu_tanh, "gelu_tanh",
     [](long double x) {
       return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0L)) * (x + 0.044715L * x * x * x)));
     },
     12.0F, 4e-7, 2e-7},
    {Activation::gelu_quick, "gelu_quick", [](long double x) { return x / (1 + std::exp(-1.702L * x)); },
     40.0F, 4e-7, 2e-7},
};

TEST(CpuMath, ActivationsStayWithinTheirStatedErrorOnEveryIsa) {
  for (const Function& f : kFunctions) {
    const std::vector<float> x = points(f.range);
    std::vector<float> first;
    for (const Kernels* k : math_tables()) {
      std::vector<float> y(x.size());
      k->activate(static_cast<int>(f.kind), x.data(), y.data(), x.size());
      long double worst = 0;
      float at = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const long double want = f.exact(x[i]);
        const long double allowed = f.relative * std::fabs(want) + f.of_x * std::fabs(x[i]) + 0x1p-149L;
        const long double part = std::fabs(y[i] - want) / allowed;
        if (!(part <= worst)) {
          worst = part;
          at = x[i];
        }
      }
      EXPECT_LE(worst, 1) << f.name << " at " << at << ", " << k->name << ", of what is allowed";
      if (first.empty()) first = y;
      EXPECT_EQ(std::memcmp(first.data(), y.data(), y.size() * sizeof(float)), 0)
          << f.name << ", " << k->name;
    }
  }
}

TEST(CpuMath, ActivationsHaveTheirLimitsAtInfinityAndKeepNaN) {
  const float inf = HUGE_VALF;
  const float x[] = {inf, -inf, 1000.0F, -1000.0F, std::nanf("")};
  const struct {
    Activation kind;
    float want[4];
  } cases[] = {
      {Activation::sigmoid, {1, 0, 1, 0}},         {Activation::tanh, {1, -1, 1, -1}},
      {Activation::gelu, {inf, 0, 1000, 0}},       {Activation::gelu_tanh, {inf, 0, 1000, 0}},
      {Activation::gelu_quick, {inf, 0, 1000, 0}}, {Activation::relu, {inf, 0, 1000, 0}},
  };
  for (const Kernels* k : math_tables())
    for (const auto& c : cases) {
      float y[5];
      k->activate(static_cast<int>(c.kind), x, y, 5);
      for (int i = 0; i < 4; ++i)
        EXPECT_EQ(y[i], c.want[i]) << k->name << ", " << static_cast<int>(c.kind) << ", " << x[i];
      EXPECT_TRUE(std::isnan(y[4])) << k->name << ", " << static_cast<int>(c.kind);
    }
}

TEST(CpuMath, SinCosOfRopeAnglesAgreesWithTheCLibrary) {
  for (int i = 0; i < 200000; ++i) {
    const double x = i < 100000 ? i * 0.37 : (i - 100000) * 10.4857;  // up to 2^20
    const SinCos got = sincos(x);
    ASSERT_NEAR(got.sin, static_cast<double>(std::sin(static_cast<long double>(x))), 3e-16) << x;
    ASSERT_NEAR(got.cos, static_cast<double>(std::cos(static_cast<long double>(x))), 3e-16) << x;
  }
}

}  // namespace
}  // namespace quipu::backends
