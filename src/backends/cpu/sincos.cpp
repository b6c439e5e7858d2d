#include "backends/cpu/sincos.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace quipu::backends {
namespace {

// p(u) = c[0] + u (c[1] + u (...)).
template <std::size_t n>
double polynomial(double u, const double (&c)[n]) {
  double p = c[n - 1];
  for (std::size_t i = n - 1; i > 0; --i) p = std::fma(p, u, c[i - 1]);
  return p;
}

}  // namespace

SinCos sincos(double x) {
  // pi / 2 as a sum of three doubles.
  constexpr double p1 = 0x1.921fb54442d18p+0, p2 = 0x1.1a62633145c07p-54, p3 = -0x1.f1976b7ed8fbcp-110;
  const double n = std::nearbyint(x * 0x1.45f306dc9c883p-1);
  double r = std::fma(-n, p1, x);
  r = std::fma(-n, p2, r);
  r = std::fma(-n, p3, r);
  // Taylor coefficients; |r| <= pi / 4, so the first ones left out are below 2^-57.
  constexpr double s[] = {-1.0 / 6,          1.0 / 120,          -1.0 / 5040,           1.0 / 362880,
                          -1.0 / 39916800.0, 1.0 / 6227020800.0, -1.0 / 1307674368000.0};
  constexpr double c[] = {-1.0 / 2,         1.0 / 24,          -1.0 / 720,           1.0 / 40320,
                          -1.0 / 3628800.0, 1.0 / 479001600.0, -1.0 / 87178291200.0, 1.0 / 20922789888000.0};
  const double u = r * r;
  const double sine = std::fma(r * u, polynomial(u, s), r);
  const double cosine = std::fma(u, polynomial(u, c), 1.0);
  switch (static_cast<std::int64_t>(n) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

}  // namespace quipu::backends
