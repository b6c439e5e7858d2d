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
  explicit LogSoftmax(std::span<const float> logits) {
    if (!candidates_.assign(logits)) {
      fail(ErrorCode::internal, "the model's logits hold no number (all of {} are NaN or -inf)",
           logits.size());
    }
    max_ = candidates_.max_logit();
    log_sum_ = std::log(candidates_.weights().sum);
  }
  float at(const Candidate& c) const {
    return static_cast<float>(std::min(0.0, static_cast<double>(c.logit) - max_ - log_sum_));
  }
  std::span<const Candidate> items() const { return candidates_.items(); }

 private:
  Candidates candidates_;
  double max_ = 0, log_sum_ = 0;
};

}  // namespace

namespace {
std::vector<TokenProbability> best_of(const LogSoftmax& softmax, std::size_t count) {
  std::vector<Candidate> best;
  select_best(softmax.items(), count, best);
  std::vector<TokenProbability> top;
  for (const Candidate& c : best) top.push_back({c.token, softmax.at(c)});
  return top;
}
}  // namespace

std::vector<TokenProbability> top_log_probabilities(std::span<const float> logits, std::size_t count) {
  if (count == 0 || logits.empty()) return {};
  return best_of(LogSoftmax(logits), count);
}

std::vector<TokenProbability> top_log_probabilities(std::span<const float> logits, std::size_t count,
                                                    std::int32_t token, float& of_token) {
  const LogSoftmax softmax(logits);
  of_token = softmax.at(softmax.items()[static_cast<std::size_t>(token)]);
  return best_of(softmax, count);
}

float log_probability(std::span<const float> logits, std::int32_t token) {
  if (token < 0 || static_cast<std::size_t>(token) >= logits.size()) {
    fail(ErrorCode::invalid_argument, "token {} has no probability, the vocabulary has {} tokens", token,
         logits.size());
  }
  const LogSoftmax softmax(logits);
  return softmax.at(softmax.items()[static_cast<std::size_t>(token)]);
}

}  // namespace quipu::engine
