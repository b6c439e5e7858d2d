// The exponential of the samplers: our own polynomial, so that a draw does not depend on the C library.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

namespace quipu::engine {

/// e^x for x <= 0 (-inf included), relative error below 4e-16; 0 below -708. No branches: loops over it
/// vectorise.
inline double exp_nonpositive(double x) {
  // x = n ln 2 + r with |r| <= ln 2 / 2; adding 1.5 * 2^52 leaves n in the low bits of the sum. The first
  // part of ln 2 has 32 bits, so n * ln2_high is exact.
  constexpr double log2_e = 1.4426950408889634074, round = 6755399441055744.0;
  constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
  const double bounded = std::max(x, -708.0);
  const double shifted = bounded * log2_e + round;
  const double n = shifted - round;
  const double r = (bounded - n * ln2_high) - n * ln2_low;
  // Taylor up to r^13 / 13!: the rest is below 5e-18.
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const double scale = std::bit_cast<double>((std::bit_cast<std::uint64_t>(shifted) + 1023) << 52);
  return x < -708.0 ? 0.0 : p * scale;
}

/// Sum in eight lanes (element i in lane i mod 8), added in a fixed order.
inline double lane_sum(std::span<const double> values) {
  double lane[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= values.size(); i += 8) {
    for (std::size_t l = 0; l < 8; ++l) lane[l] += values[i + l];
  }
  for (std::size_t l = 0; i < values.size(); ++i, ++l) lane[l] += values[i];
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

}  // namespace quipu::engine
