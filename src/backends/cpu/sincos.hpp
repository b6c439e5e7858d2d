// Sine and cosine of a double, our own: RoPE angles must not depend on the C library.
#pragma once

namespace quipu::backends {

struct SinCos {
  double sin, cos;
};
/// Within 2 ulp of double for |x| < 2^30 (positions times frequencies <= 1 stay far below). Payne-Hanek is
/// not needed there: x is reduced by multiples of pi / 2 in three parts (Cody & Waite), then Taylor
/// polynomials.
SinCos sincos(double x);

}  // namespace quipu::backends
