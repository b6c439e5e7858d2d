// DRY ("don't repeat yourself"): a token that would lengthen a repetition is penalised, exponentially in the
// repetition's length. Source: p-e-w, text-generation-webui pull request 5677, as llama.cpp documents it.
#include <algorithm>
#include <map>
#include <vector>

#include "engine/sampling/stages.hpp"

namespace quipu::engine {

namespace {

/// z[j] = length of the longest common prefix of `s` and `s` from j on; z[0] = 0. Linear time.
std::vector<std::size_t> z_array(std::span<const std::int32_t> s) {
  std::vector<std::size_t> z(s.size(), 0);
  std::size_t left = 0, right = 0;  // [left, right) equals the prefix of that length, right as far as known
  for (std::size_t j = 1; j < s.size(); ++j) {
    std::size_t n = j < right ? std::min(right - j, z[j - left]) : 0;
    while (j + n < s.size() && s[n] == s[j + n]) ++n;
    z[j] = n;
    if (j + n > right) {
      left = j;
      right = j + n;
    }
  }
  return z;
}

/// Number of newest tokens after the last sequence breaker: repetitions do not reach across one.
std::size_t tokens_since_breaker(std::span<const std::int32_t> newest_first,
                                 const std::vector<std::vector<std::int32_t>>& breakers) {
  for (std::size_t i = 0; i < newest_first.size(); ++i) {
    // A breaker that starts i tokens before the newest one and is complete; of several, the longest.
    std::size_t longest = 0;
    for (const auto& breaker : breakers) {
      if (breaker.size() <= longest || breaker.size() > i + 1) continue;
      bool equal = true;
      for (std::size_t k = 0; k < breaker.size() && equal; ++k) equal = newest_first[i - k] == breaker[k];
      if (equal) longest = breaker.size();
    }
    if (longest > 0) return i + 1 - longest;
  }
  return newest_first.size();
}

/// base^n by squaring: products only, the same on every machine.
double integer_power(double base, std::size_t n) {
  double result = 1.0;
  for (; n > 0; n >>= 1) {
    if (n & 1) result *= base;
    base *= base;
  }
  return result;
}

}  // namespace

void apply_dry(Candidates& candidates, const SamplingParams& params, const StageContext& context) {
  if (params.dry_multiplier == 0.0 || params.dry_penalty_last_n == 0) return;
  std::size_t window = context.history.size();
  if (params.dry_penalty_last_n > 0) {
    window = static_cast<std::size_t>(
        std::min<std::uint64_t>(window, static_cast<std::uint64_t>(params.dry_penalty_last_n)));
  }
  const auto allowed = static_cast<std::size_t>(params.dry_allowed_length);
  if (window <= allowed) return;
  const std::vector<std::int32_t> newest_first(
      context.history.rbegin(), context.history.rbegin() + static_cast<std::ptrdiff_t>(window));
  const std::size_t limit = tokens_since_breaker(newest_first, params.dry_sequence_breakers);
  if (limit < allowed) return;

  // z[j]: the newest z[j] tokens also stand before position j (counted from the end); j - 1 is the token that
  // followed them there, and the one that would go on repeating.
  const std::vector<std::size_t> z = z_array(newest_first);
  std::map<std::int32_t, std::size_t> longest;
  for (std::size_t j = 1; j < window; ++j) {
    const std::size_t length = std::min(z[j], limit);
    if (length < allowed) continue;
    std::size_t& known = longest[newest_first[j - 1]];
    known = std::max(known, length);
  }
  candidates.sort_by_token();
  for (const auto& [token, length] : longest) {
    // Breakers of one token are free: line ends and quotation marks repeat in any text.
    const bool breaks = std::find(params.dry_sequence_breakers.begin(), params.dry_sequence_breakers.end(),
                                  std::vector{token}) != params.dry_sequence_breakers.end();
    if (breaks) continue;
    if (Candidate* c = candidates.find(token)) {
      // Bounded, so that a token stays possible when it is the only one left.
      const double penalty = params.dry_multiplier * integer_power(params.dry_base, length - allowed);
      c->logit = Candidates::to_logit(c->logit - std::min(penalty, 1e300));
    }
  }
}

}  // namespace quipu::engine
