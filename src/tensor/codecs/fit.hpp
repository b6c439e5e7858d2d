// How the reference encoders choose a block's scale: searches that make the weighted squared error small. The
// constants and the order of the float operations follow the formats' reference implementation (ggml), so
// that files come out the same byte for byte.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

namespace quipu::codecs {

/// Sub-blocks with a smaller magnitude count as zero.
inline constexpr float kZeroBlock = 1e-15F;

/// Rounds to the nearest integer, ties to even. Exact for |x| <= 2^22, defined (but meaningless) elsewhere:
/// adding 1.5 * 2^23 leaves the integer in the low fraction bits.
inline int nearest_int(float x) {
  return static_cast<int>(std::bit_cast<std::uint32_t>(x + 12582912.0F) & 0x007FFFFFU) - 0x00400000;
}

/// x = scale * q - minimum, minimum >= 0.
struct AffineFit {
  float scale = 0, minimum = 0;
};
enum class Loss { absolute, squared };
struct AffineSearch {
  int largest;        ///< codes are 0..largest
  float first, step;  ///< code ranges tried: largest + first + step * i
  int steps;          ///< for i = 0..steps
  Loss loss;
};
/// Codes of `x` (at most 32 values) for the best affine fit found, each error weighted by `weights`.
AffineFit fit_affine(std::span<const float> x, std::span<const float> weights, const AffineSearch& search,
                     std::span<std::uint8_t> codes);

/// x = scale * (code - half), codes 0..2 half - 1, errors weighted by x^2; tries 19 code ranges.
float fit_symmetric(std::span<const float> x, int half, std::span<std::uint8_t> codes);

/// The same form, but improved code by code (at most five rounds), as Q3_K does.
float fit_symmetric_stepwise(std::span<const float> x, int half, std::span<std::uint8_t> codes);

/// 1 / d, and 0 of a block whose scale is 0.
inline float inverse_of(float d) { return d != 0 ? 1.0F / d : 0.0F; }

/// The value of largest magnitude, the first of equals; 0 when there is none.
inline float extreme(std::span<const float> x) {
  float magnitude = 0, value = 0;
  for (const float v : x) {
    const float a = v < 0 ? -v : v;
    if (a > magnitude) magnitude = a, value = v;
  }
  return value;
}

}  // namespace quipu::codecs
