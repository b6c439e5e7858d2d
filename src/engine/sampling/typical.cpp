// Locally typical sampling: the tokens whose surprise is nearest to the entropy, until they have probability
// p together. Source: Meister et al., "Locally Typical Sampling" (TACL 2023).
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/sampling/stages.hpp"

namespace quipu::engine {

void apply_typical(Candidates& candidates, const SamplingParams& params, const StageContext&) {
  if (params.typical_p >= 1.0) return;
  const auto min_keep = static_cast<std::size_t>(std::max<std::int64_t>(params.min_keep, 1));
  struct Scored {
    double distance, p;
    Candidate candidate;
  };
  std::vector<Scored> scored;
  double entropy = 0;
  {
    const auto weights = candidates.weights();
    const auto items = candidates.items();
    scored.reserve(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      const double p = weights.values[i] / weights.sum;
      if (p <= 0) continue;  // infinitely surprising
      scored.push_back({-std::log(p), p, items[i]});
      entropy += p * scored.back().distance;
    }
  }
  for (Scored& s : scored) s.distance = std::abs(s.distance - entropy);
  const auto nearer = [](const Scored& a, const Scored& b) {
    return a.distance < b.distance || (a.distance == b.distance && better(a.candidate, b.candidate));
  };
  std::vector<Candidate> kept;
  double cumulative = 0;
  // Sorted in growing parts: most of a large vocabulary is never reached.
  std::size_t sorted = 0;
  for (std::size_t part = 512; sorted < scored.size(); part *= 8) {
    const std::size_t end = std::min(scored.size(), sorted + part);
    std::partial_sort(scored.begin() + static_cast<std::ptrdiff_t>(sorted),
                      scored.begin() + static_cast<std::ptrdiff_t>(end), scored.end(), nearer);
    for (; sorted < end; ++sorted) {
      kept.push_back(scored[sorted].candidate);
      cumulative += scored[sorted].p;
      if (cumulative > params.typical_p && kept.size() >= min_keep) {
        candidates.keep_only(kept);
        return;
      }
    }
  }
  candidates.keep_only(kept);
}

}  // namespace quipu::engine
