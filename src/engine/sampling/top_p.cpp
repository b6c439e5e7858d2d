// Top-p (nucleus): the fewest most probable tokens that together have probability p.
// Source: Holtzman et al., "The Curious Case of Neural Text Degeneration" (ICLR 2020).
#include <algorithm>
#include <vector>

#include "engine/sampling/mass_prefix.hpp"
#include "engine/sampling/stages.hpp"

namespace quipu::engine {

void apply_top_p(Candidates& candidates, const SamplingParams& params, const StageContext& context) {
  if (params.top_p >= 1.0) return;
  const auto min_keep = static_cast<std::size_t>(std::max<std::int64_t>(params.min_keep, 1));
  const auto items = candidates.items();
  const auto weights = candidates.weights();
  // Tokens below this share have less than 1 - p together, so the nucleus lies in the rest. The factor leaves
  // room for rounding.
  const double least = weights.sum * (1.0 - params.top_p) / static_cast<double>(items.size()) * 0.999;
  std::vector<Weighted<Candidate>>& eligible = context.room.eligible;
  eligible.clear();
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (weights.values[i] >= least || items.size() <= min_keep)
      eligible.push_back({items[i], weights.values[i]});
  }
  if (eligible.size() < min_keep) {  // the floor reaches below the nucleus
    candidates.keep_best(min_keep);
    return;
  }
  const double target = params.top_p * weights.sum;
  const std::size_t count = mass_prefix(
      eligible, [](const auto& a, const auto& b) { return better(a.key, b.key); },
      [=](double mass) { return mass >= target; }, min_keep);
  const Candidate last = eligible[count - 1].key;
  candidates.keep_if([=](const Candidate& c) { return !better(last, c); });
}

}  // namespace quipu::engine
