// The exponential of the samplers: our own polynomial, so that a draw does not depend on the C library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/sampling/candidates.hpp"

namespace quipu::engine {

/// A vector of the processor: `lanes` doubles.
template <std::size_t lanes>
struct Lanes {
  using Doubles [[gnu::vector_size(8 * lanes)]] = double;
  using Bits [[gnu::vector_size(8 * lanes)]] = std::int64_t;
};

/// x := e^x for x <= 0 (-inf included), relative error below 4e-16; 0 below -708. The same for any number of
/// lanes. By reference, since how a function takes vectors depends on what its caller is compiled for.
template <std::size_t lanes>
[[gnu::always_inline]] inline void exp_nonpositive(typename Lanes<lanes>::Doubles& x) {
  using Doubles = typename Lanes<lanes>::Doubles;
  using Bits = typename Lanes<lanes>::Bits;
  // x = n ln 2 + r with |r| <= ln 2 / 2; adding 1.5 * 2^52 leaves n in the low bits of the sum. The first
  // part of ln 2 has 32 bits, so n * ln2_high is exact.
  constexpr double log2_e = 1.4426950408889634074, round = 6755399441055744.0;
  constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
  const Doubles least = Doubles{} - 708.0;
  const Doubles bounded = x < least ? least : x;
  const Doubles shifted = bounded * log2_e + round;
  const Doubles n = shifted - round;
  const Doubles r = (bounded - n * ln2_high) - n * ln2_low;
  // Taylor up to r^13 / 13!: the rest is below 5e-18.
  Doubles p = Doubles{} + 1.0 / 6227020800.0;
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
  const auto scale = (Doubles)(((Bits)shifted + 1023) << 52);
  x = x < least ? Doubles{} : p * scale;
}
inline double exp_nonpositive(double x) {
  Lanes<2>::Doubles lanes{x, x};
  exp_nonpositive<2>(lanes);
  return lanes[0];
}

/// out[i] = exp(logit[i] - max), for the logits of candidates or of a whole vocabulary; the same on every
/// processor.
void exp_differences(std::span<const Candidate> items, double max, std::span<double> out);
void exp_differences(std::span<const float> logits, double max, std::span<double> out);

/// Sum in eight lanes (element i in lane i mod 8), added in a fixed order.
inline double lane_sum(std::span<const double> values) {
  double lane[8] = {};
  const std::size_t whole = values.size() / 8 * 8;
  for (std::size_t i = 0; i < whole; i += 8) {
    for (std::size_t l = 0; l < 8; ++l) lane[l] += values[i + l];
  }
  for (std::size_t i = whole; i < values.size(); ++i) lane[i - whole] += values[i];
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

}  // namespace quipu::engine
