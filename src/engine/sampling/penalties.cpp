// Repetition, presence and frequency penalties over the last tokens.
// Sources: Keskar et al., "CTRL" (2019), section 4.1, for the repetition penalty (negative logits are
// multiplied, as all implementations do); the OpenAI API reference for the other two.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/sampling/stages.hpp"

namespace quipu::engine {

void apply_penalties(Candidates& candidates, const SamplingParams& params, const StageContext& context) {
  const bool off =
      params.repeat_penalty == 1.0 && params.presence_penalty == 0.0 && params.frequency_penalty == 0.0;
  if (off || params.repeat_last_n == 0) return;
  std::span<const std::int32_t> window = context.history;
  if (params.repeat_last_n > 0 && window.size() > static_cast<std::uint64_t>(params.repeat_last_n)) {
    window = window.last(static_cast<std::size_t>(params.repeat_last_n));
  }
  candidates.sort_by_token();
  std::vector<std::uint32_t>& counts = context.room.counts;
  counts.resize(std::max(counts.size(), static_cast<std::size_t>(candidates.items().back().token) + 1));
  for (const std::int32_t token : window) {
    if (static_cast<std::size_t>(token) < counts.size()) ++counts[static_cast<std::size_t>(token)];
  }
  for (const std::int32_t token : window) {
    if (static_cast<std::size_t>(token) >= counts.size()) continue;
    const double count = std::exchange(counts[static_cast<std::size_t>(token)], 0);
    Candidate* c = candidates.find(token);
    if (count == 0 || c == nullptr || std::isinf(c->logit)) continue;
    double logit = c->logit;
    logit = logit > 0 ? logit / params.repeat_penalty : logit * params.repeat_penalty;
    logit -= count * params.frequency_penalty + params.presence_penalty;
    c->logit = Candidates::to_logit(std::clamp(logit, -1e300, 1e300));
  }
}

}  // namespace quipu::engine
