// Rotary frequencies under the scaling methods. All in double; rounded nowhere.
//
// Sources: RoPE, Su et al. 2021; linear (position interpolation), Chen et al. 2023; NTK-aware, the base
// change of bloc97 2023 as derived in section 3.1 of YaRN, Peng et al. 2023; YaRN, the same paper,
// sections 3.2 to 3.4; LongRoPE, Ding et al. 2024 (its factors are `factors`).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.hpp"
#include "models/model.hpp"

namespace quipu::models {
namespace {

/// Pair index (as a real number) that makes `turns` full turns over the original context.
double pair_of_turns(double turns, double dims, double base, double original_context) {
  return dims * std::log(original_context / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
}

/// How much of each pair is interpolated: 0 (fast pairs, left alone) to 1 (slow pairs, scaled by the factor).
std::vector<double> yarn_ramp(const RopeScaling& s, std::uint32_t dims, double base) {
  double begin = pair_of_turns(s.beta_fast, dims, base, s.original_context);
  double end = pair_of_turns(s.beta_slow, dims, base, s.original_context);
  if (s.whole_pairs) {
    begin = std::floor(begin);
    end = std::ceil(end);
  }
  const double first = std::max(0.0, begin), last = std::min(dims - 1.0, end);
  std::vector<double> ramp(dims / 2);
  for (std::size_t i = 0; i < ramp.size(); ++i)
    ramp[i] = std::clamp((static_cast<double>(i) - first) / std::max(0.001, last - first), 0.0, 1.0);
  return ramp;
}

std::vector<float> decode_factors(const TensorView& factors) {
  const auto n = static_cast<std::size_t>(factors.elements());
  std::vector<float> values(n);
  info(factors.dtype).decode(factors.data, values.data(), n);
  for (std::size_t i = 0; i < n; ++i)
    if (!(values[i] > 0) || !std::isfinite(values[i]))
      fail(ErrorCode::bad_file, "tensor {}: factor {} is {}, expected a positive number",
           printable(factors.name), i, values[i]);
  return values;
}

}  // namespace

RopeFrequencies rope_frequencies(const Hyperparameters& hyper, const std::optional<TensorView>& factors) {
  const RopeScaling& s = hyper.rope_scaling;
  const double dims = hyper.rope_dims;
  double base = hyper.rope_freq_base;
  if (s.type == RopeScalingType::ntk && dims > 2) base *= std::pow(s.factor, dims / (dims - 2));

  std::vector<double> inv_freq(hyper.rope_dims / 2);
  for (std::size_t i = 0; i < inv_freq.size(); ++i)
    inv_freq[i] = std::pow(base, -2.0 * static_cast<double>(i) / dims);
  if (factors) {
    const std::vector<float> divisors = decode_factors(*factors);
    for (std::size_t i = 0; i < inv_freq.size(); ++i) inv_freq[i] /= divisors[i];
  }

  double magnitude = 1;
  if (s.type == RopeScalingType::linear) {
    for (double& f : inv_freq) f /= s.factor;
  } else if (s.type == RopeScalingType::yarn) {
    const std::vector<double> ramp = yarn_ramp(s, hyper.rope_dims, base);
    for (std::size_t i = 0; i < inv_freq.size(); ++i) {
      const double keep = (1 - ramp[i]) * s.extrapolation_factor;
      inv_freq[i] = inv_freq[i] * keep + inv_freq[i] / s.factor * (1 - keep);
    }
    // The paper's attention temperature; without extrapolation it is plain interpolation, which has none.
    if (s.extrapolation_factor > 0) magnitude = 0.1 * std::log(s.factor) + 1;
    magnitude *= s.attention_factor;
  } else if (s.type == RopeScalingType::longrope) {
    magnitude = s.attention_factor;
  }
  return {std::make_shared<const std::vector<double>>(std::move(inv_freq)), static_cast<float>(magnitude)};
}

}  // namespace quipu::models
