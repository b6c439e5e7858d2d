// Top-k: the k most probable tokens. Source: Fan et al., "Hierarchical Neural Story Generation" (ACL 2018).
#include "engine/sampling/stages.hpp"

namespace quipu::engine {

void apply_top_k(Candidates& candidates, const SamplingParams& params, const StageContext&) {
  if (params.top_k == 0 || static_cast<std::uint64_t>(params.top_k) >= candidates.size()) return;
  candidates.keep_best(static_cast<std::size_t>(params.top_k));
}

}  // namespace quipu::engine
