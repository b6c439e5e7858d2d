// Min-p: tokens at least min_p times as probable as the best. Source: Nguyen et al., "Turning Up the Heat:
// Min-p Sampling for Creative and Coherent LLM Outputs" (ICLR 2025).
#include <algorithm>
#include <cmath>

#include "engine/sampling/stages.hpp"

namespace quipu::engine {

void apply_min_p(Candidates& candidates, const SamplingParams& params, const StageContext&) {
  if (params.min_p == 0.0) return;
  const auto min_keep = static_cast<std::size_t>(std::max<std::int64_t>(params.min_keep, 1));
  if (params.min_p >= 1.0) {  // equals greedy, ties included
    candidates.keep_best(min_keep);
    return;
  }
  const double least = static_cast<double>(candidates.max_logit()) + std::log(params.min_p);
  const auto fits = [=](const Candidate& c) { return c.logit >= least; };
  const auto items = candidates.items();
  if (static_cast<std::size_t>(std::count_if(items.begin(), items.end(), fits)) < min_keep) {
    candidates.keep_best(min_keep);
  } else {
    candidates.keep_if(fits);
  }
}

}  // namespace quipu::engine
