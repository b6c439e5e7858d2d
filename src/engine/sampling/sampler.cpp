// The chain: bias, the stages in the order asked for, one draw.
#include "engine/sampling/sampler.hpp"

#include <optional>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/philox.hpp"
#include "engine/sampling/softmax.hpp"
#include "engine/sampling/stages.hpp"

namespace quipu::engine {

namespace {

/// Walks the candidates by ascending id, so that the token depends on which candidates are left and not on
/// how they were found.
std::int32_t draw(Candidates& candidates, double uniform) {
  candidates.sort_by_token();
  const auto items = candidates.items();
  if (items.size() == 1) return items[0].token;
  const auto weights = candidates.weights();
  const std::span<const double> values = weights.values;
  const double target = uniform * weights.sum;
  // Whole blocks first, then one by one in the block that reaches the target.
  constexpr std::size_t kBlock = 64;
  double cumulative = 0;
  std::size_t i = 0;
  for (; i + kBlock < values.size(); i += kBlock) {
    const double with_block = cumulative + lane_sum(values.subspan(i, kBlock));
    if (with_block > target) break;
    cumulative = with_block;
  }
  std::size_t last = values.size();
  for (; i < values.size(); ++i) {
    if (values[i] == 0) continue;
    cumulative += values[i];
    last = i;
    if (cumulative > target) break;
  }
  // Rounding may leave the sum of all a little below the target: then it is the last one that has a
  // probability.
  if (last == values.size()) {
    do {
      --last;
    } while (values[last] == 0);
  }
  return items[last].token;
}

}  // namespace

struct Sampler::Impl {
  SamplingParams params;
  std::vector<const Stage*> stages;
  std::optional<Mirostat> mirostat;
  Candidates candidates;
  StageRoom room;

  void apply(const StageContext& context, bool scores_only) {
    for (const Stage* stage : stages) {
      if (!scores_only || stage->changes_scores) stage->apply(candidates, params, context);
    }
  }
};

Sampler::Sampler(SamplingParams params) : impl_(std::make_unique<Impl>()) {
  params.validate();
  for (const std::string& name : params.samplers) impl_->stages.push_back(find_stage(name));
  if (params.mirostat == 2) impl_->mirostat.emplace(params.mirostat_tau, params.mirostat_eta);
  impl_->params = std::move(params);
}
Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;

const SamplingParams& Sampler::params() const { return impl_->params; }

std::int32_t Sampler::sample(std::span<const float> logits, std::span<const std::int32_t> history,
                             std::optional<TokenMask> allowed) {
  Impl& s = *impl_;
  const StageContext context{history, history.size(), s.room};
  if (!s.candidates.assign(logits)) {
    fail(ErrorCode::internal, "the model's logits hold no number (all of {} are NaN or -inf)", logits.size());
  }
  apply_logit_bias(s.candidates, s.params, context);
  if (!s.params.logit_bias.empty() && !s.candidates.any_allowed()) {
    fail(ErrorCode::invalid_argument, "logit_bias forbids every token the model allows");
  }
  if (allowed && !s.candidates.keep_allowed(*allowed)) {
    fail(ErrorCode::invalid_argument,
         "no token can go on: the constraint allows none that the model and logit_bias leave");
  }
  if (s.params.temperature == 0) {
    s.apply(context, true);
    return s.candidates.best().token;
  }
  if (s.mirostat) {
    s.apply(context, true);
    apply_temperature(s.candidates, s.params, context);
    s.mirostat->truncate(s.candidates);
    const std::int32_t token =
        draw(s.candidates, philox_uniform(s.params.seed, context.position, kDrawMirostat));
    s.mirostat->observe(s.candidates, token);
    return token;
  }
  s.apply(context, false);
  return draw(s.candidates, philox_uniform(s.params.seed, context.position, kDrawToken));
}

}  // namespace quipu::engine
