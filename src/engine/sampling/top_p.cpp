// Top-p (nucleus): the fewest most probable tokens that together have probability p.
// Source: Holtzman et al., "The Curious Case of Neural Text Degeneration" (ICLR 2020).
#include <algorithm>

#include "engine/sampling/stages.hpp"

namespace quipu::engine {

void apply_top_p(Candidates& candidates, const SamplingParams& params, const StageContext&) {
  if (params.top_p >= 1.0) return;
  const auto min_keep = static_cast<std::size_t>(std::max<std::int64_t>(params.min_keep, 1));
  const std::size_t all = candidates.size();
  double sum;
  {
    const auto weights = candidates.weights();
    sum = weights.sum;
    // Tokens below this share have less than 1 - p together, so the nucleus lies in the rest and only that
    // needs sorting. The factor leaves room for rounding.
    const double least = sum * (1.0 - params.top_p) / static_cast<double>(all) * 0.999;
    const auto eligible =
        std::count_if(weights.values.begin(), weights.values.end(), [=](double w) { return w >= least; });
    if (static_cast<std::size_t>(eligible) >= min_keep && all > 256) {
      const double* w = weights.values.data();
      candidates.keep_if([&](const Candidate&) { return *w++ >= least; });
    }
  }
  candidates.sort_by_logit();
  const auto weights = candidates.weights();
  double cumulative = 0;
  std::size_t count = 0;
  while (count < weights.values.size()) {
    cumulative += weights.values[count++];
    if (cumulative >= params.top_p * sum && count >= min_keep) break;
  }
  candidates.keep_best(count);
}

}  // namespace quipu::engine
