// Logit bias: a number added to single tokens' logits; -inf forbids.
#include "core/error.hpp"
#include "engine/sampling/stages.hpp"

namespace quipu::engine {

void apply_logit_bias(Candidates& candidates, const SamplingParams& params, const StageContext&) {
  if (params.logit_bias.empty()) return;
  candidates.sort_by_token();
  for (const auto& [token, bias] : params.logit_bias) {
    Candidate* c = candidates.find(token);
    if (c == nullptr) {
      fail(ErrorCode::invalid_argument, "logit_bias names token {}, the vocabulary has {} tokens", token,
           candidates.size());
    }
    c->logit = Candidates::to_logit(static_cast<double>(c->logit) + bias);
  }
}

}  // namespace quipu::engine
