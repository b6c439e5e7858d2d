// Natural logarithms of the softmax of raw logits.
#include "engine/sampling/logprobs.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "engine/sampling/candidates.hpp"
#include "engine/sampling/softmax.hpp"

namespace quipu::engine {

namespace {

/// log softmax(x)_i = x_i - max - log(sum exp(x_j - max)): no term overflows, the result is never above 0.
class LogSoftmax {
 public:
  explicit LogSoftmax(std::span<const float> logits) : logits_(logits) {
    Candidates candidates;
    if (!candidates.assign(logits)) {
      fail(ErrorCode::internal, "the model's logits hold no number (all of {} are NaN or -inf)",
           logits.size());
    }
    max_ = candidates.max_logit();
    log_sum_ = std::log(candidates.weights().sum);
  }
  float of(float logit) const {
    return static_cast<float>(std::min(0.0, static_cast<double>(logit) - max_ - log_sum_));
  }
  float at(std::int32_t token) const { return of(usable_logit(logits_[static_cast<std::size_t>(token)])); }
  std::vector<TokenProbability> best(std::size_t count) const {
    std::vector<Candidate> chosen;
    select_best(logits_, count, chosen);
    std::vector<TokenProbability> top;
    for (const Candidate& c : chosen) top.push_back({c.token, of(c.logit)});
    return top;
  }

 private:
  std::span<const float> logits_;
  double max_ = 0, log_sum_ = 0;
};

}  // namespace

std::vector<TokenProbability> top_log_probabilities(std::span<const float> logits, std::size_t count) {
  if (count == 0 || logits.empty()) return {};
  return LogSoftmax(logits).best(count);
}

std::vector<TokenProbability> top_log_probabilities(std::span<const float> logits, std::size_t count,
                                                    std::int32_t token, float& of_token) {
  const LogSoftmax softmax(logits);
  of_token = softmax.at(token);
  return softmax.best(count);
}

float log_probability(std::span<const float> logits, std::int32_t token) {
  if (token < 0 || static_cast<std::size_t>(token) >= logits.size()) {
    fail(ErrorCode::invalid_argument, "token {} has no probability, the vocabulary has {} tokens", token,
         logits.size());
  }
  return LogSoftmax(logits).at(token);
}

}  // namespace quipu::engine
