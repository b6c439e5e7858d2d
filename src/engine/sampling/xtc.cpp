// XTC ("exclude top choices"): with some probability, all tokens above a threshold but the least probable of
// them go. Source: p-e-w, text-generation-webui pull request 6335, as llama.cpp documents it.
#include <algorithm>

#include "core/philox.hpp"
#include "engine/sampling/stages.hpp"

namespace quipu::engine {

void apply_xtc(Candidates& candidates, const SamplingParams& params, const StageContext& context) {
  if (params.xtc_probability <= 0.0 || params.xtc_threshold > 0.5 || candidates.size() < 2) return;
  if (philox_uniform(params.seed, context.position, kDrawXtc) >= params.xtc_probability) return;
  const auto weights = candidates.weights();
  const auto items = candidates.items();
  std::size_t above = 0;
  Candidate least{};
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (weights.values[i] == 0 || weights.values[i] < params.xtc_threshold * weights.sum) continue;
    if (above == 0 || better(least, items[i])) least = items[i];
    ++above;
  }
  const auto min_keep = static_cast<std::size_t>(std::max<std::int64_t>(params.min_keep, 1));
  if (above < 2 || items.size() - (above - 1) < min_keep) return;
  candidates.keep_if([=](const Candidate& c) { return !better(c, least); });
}

}  // namespace quipu::engine
