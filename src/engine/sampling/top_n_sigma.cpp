// Top-n-sigma: logits within n standard deviations of the maximum. Source: Tang et al., "Top-n sigma: Not All
// Logits Are You Need" (2024).
#include <cmath>

#include "engine/sampling/stages.hpp"

namespace quipu::engine {

void apply_top_n_sigma(Candidates& candidates, const SamplingParams& params, const StageContext&) {
  if (params.top_n_sigma <= 0.0 || candidates.size() == 1) return;
  // Forbidden tokens have no logit to average. Relative to the maximum, so that nothing overflows.
  const double max = candidates.max_logit();
  double sum = 0, squares = 0, count = 0;
  for (const Candidate& c : candidates.items()) {
    if (!std::isfinite(c.logit)) continue;
    sum += c.logit - max;
    count += 1;
  }
  const double mean = sum / count;
  for (const Candidate& c : candidates.items()) {
    if (!std::isfinite(c.logit)) continue;
    const double d = (c.logit - max) - mean;
    squares += d * d;
  }
  const double least = -params.top_n_sigma * std::sqrt(squares / count);
  candidates.keep_if([=](const Candidate& c) { return c.logit - max >= least; });
}

}  // namespace quipu::engine
