// Temperature, fixed or by entropy ("dynamic temperature", kalomaze's proposal as in llama.cpp).
#include <algorithm>
#include <cmath>

#include "engine/sampling/stages.hpp"

namespace quipu::engine {

namespace {

/// Between temperature - range (at least 0) and temperature + range, by the entropy of the candidates
/// relative to that of a uniform choice, to the power of the exponent.
double dynamic_temperature(Candidates& candidates, const SamplingParams& params) {
  const double low = std::max(0.0, params.temperature - params.dynatemp_range);
  const double high = params.temperature + params.dynatemp_range;
  const auto weights = candidates.weights();
  double entropy = 0;
  for (const double w : weights.values) {
    const double p = w / weights.sum;
    if (p > 0) entropy -= p * std::log(p);
  }
  const double share = std::max(0.0, entropy / std::log(static_cast<double>(candidates.size())));
  return low + (high - low) * std::pow(share, params.dynatemp_exponent);
}

}  // namespace

void apply_temperature(Candidates& candidates, const SamplingParams& params, const StageContext&) {
  double temperature = params.temperature;
  if (params.dynatemp_range > 0) {
    if (candidates.size() == 1) return;
    temperature = dynamic_temperature(candidates, params);
  }
  if (temperature == 0) {
    candidates.keep_best(1);
    return;
  }
  if (temperature == 1) return;
  // Relative to the maximum, so that a temperature of 1e-9 cannot overflow upwards.
  const double max = candidates.max_logit();
  candidates.change_logits([=](const Candidate& c) {
    return Candidates::to_logit((static_cast<double>(c.logit) - max) / temperature);
  });
}

}  // namespace quipu::engine
