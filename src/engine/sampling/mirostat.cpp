#include <algorithm>
#include <cmath>

#include "engine/sampling/stages.hpp"

namespace quipu::engine {

void Mirostat::truncate(Candidates& candidates) const {
  const auto weights = candidates.weights();
  const double least = std::exp2(-mu_) * weights.sum;
  const Candidate best = candidates.best();
  const double* w = weights.values.data();
  candidates.keep_if([&](const Candidate& c) { return *w++ >= least || c.token == best.token; });
}

void Mirostat::observe(Candidates& kept, std::int32_t token) {
  const auto weights = kept.weights();
  const auto items = kept.items();
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].token != token) continue;
    const double surprise = -std::log2(weights.values[i] / weights.sum);
    mu_ -= eta_ * (surprise - tau_);
    return;
  }
}

}  // namespace quipu::engine
