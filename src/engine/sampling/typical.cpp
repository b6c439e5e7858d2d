// Locally typical sampling: the tokens whose surprise is nearest to the entropy, until they have probability
// p together. Source: Meister et al., "Locally Typical Sampling" (TACL 2023).
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/sampling/mass_prefix.hpp"
#include "engine/sampling/stages.hpp"

namespace quipu::engine {

namespace {

struct Typicality {
  double distance;  // of the surprise from the entropy
  Candidate candidate;
};

}  // namespace

void apply_typical(Candidates& candidates, const SamplingParams& params, const StageContext&) {
  if (params.typical_p >= 1.0) return;
  const auto min_keep = static_cast<std::size_t>(std::max<std::int64_t>(params.min_keep, 1));
  const auto items = candidates.items();
  const auto weights = candidates.weights();
  // ln p = logit - max - ln sum
  const double shift = candidates.max_logit() + std::log(weights.sum);
  std::vector<Weighted<Typicality>> scored;
  scored.reserve(items.size());
  double entropy = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const double p = weights.values[i] / weights.sum;
    if (p <= 0) continue;  // infinitely surprising
    const double surprise = shift - items[i].logit;
    scored.push_back({{surprise, items[i]}, p});
    entropy += p * surprise;
  }
  for (auto& s : scored) s.key.distance = std::abs(s.key.distance - entropy);
  const std::size_t count = mass_prefix(
      scored,
      [](const auto& a, const auto& b) {
        if (a.key.distance != b.key.distance) return a.key.distance < b.key.distance;
        return better(a.key.candidate, b.key.candidate);
      },
      [=](double mass) { return mass > params.typical_p; }, min_keep);
  std::vector<Candidate> kept;
  kept.reserve(count);
  for (std::size_t i = 0; i < count; ++i) kept.push_back(scored[i].key.candidate);
  candidates.keep_only(kept);
}

}  // namespace quipu::engine
