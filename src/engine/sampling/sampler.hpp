// Logits to a token: a pure function of (logits, tokens so far, parameters, position).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quipu::engine {

/// Names and defaults follow llama.cpp. Out of range values are an `Error` (invalid_argument) that names the
/// parameter, the value and the allowed range; see `validate`.
struct SamplingParams {
  std::uint64_t seed = 0;
  double temperature = 0.8;     ///< >= 0; 0 is greedy
  double dynatemp_range = 0.0;  ///< >= 0; 0 off
  double dynatemp_exponent = 1.0;
  std::int64_t top_k = 40;       ///< >= 0; 0 off
  double top_p = 0.95;           ///< [0, 1]; 1 off; 0 keeps the most probable
  double min_p = 0.05;           ///< [0, 1]; 0 off; 1 keeps the most probable
  double typical_p = 1.0;        ///< (0, 1]; 1 off
  double top_n_sigma = -1.0;     ///< <= 0 off
  double xtc_probability = 0.0;  ///< [0, 1]; 0 off
  double xtc_threshold = 0.1;    ///< [0, 1]; > 0.5 off
  double dry_multiplier = 0.0;   ///< >= 0; 0 off
  double dry_base = 1.75;
  std::int64_t dry_allowed_length = 2;
  std::int64_t dry_penalty_last_n = -1;                          ///< -1 whole context, 0 off
  std::vector<std::vector<std::int32_t>> dry_sequence_breakers;  ///< tokenised
  std::int64_t repeat_last_n = 64;                               ///< -1 whole context, 0 off
  double repeat_penalty = 1.0;                                   ///< > 0; 1 off
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  int mirostat = 0;  ///< 0 or 2
  double mirostat_tau = 5.0;
  double mirostat_eta = 0.1;
  std::map<std::int32_t, float> logit_bias;  ///< -inf forbids
  /// Order of the stages; unknown names are an error, an empty list samples from the plain distribution.
  std::vector<std::string> samplers{"penalties", "dry",   "top_n_sigma", "top_k",      "typ_p",
                                    "top_p",     "min_p", "xtc",         "temperature"};
  std::int64_t min_keep = 1;

  void validate() const;
  /// Names that `samplers` accepts, with the short letters llama.cpp gives them.
  static std::span<const std::string_view> sampler_names();
};

struct TokenProbability {
  std::int32_t token;
  float log_probability;  ///< natural log of the softmax of the raw logits
};

/// Tokens that may be drawn, one bit each, 64 a word from the lowest bit on; tokens beyond the end may not.
using TokenMask = std::span<const std::uint64_t>;

/// Holds only what the parameters derive (and mirostat's running mu). The draw at `position` uses
/// philox(seed, position), so nothing depends on earlier draws.
class Sampler {
 public:
  /// Validates.
  explicit Sampler(SamplingParams params);
  ~Sampler();
  Sampler(Sampler&&) noexcept;

  /// `history`: all tokens before the one to be drawn (prompt and output). `position` = history.size().
  /// Logits with NaN everywhere are an `Error` (internal sentence for the user); single NaNs count as -inf.
  /// With `allowed`, other tokens are dropped before the stages; that none is left is an `Error`
  /// (invalid_argument).
  std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> history,
                      std::optional<TokenMask> allowed = std::nullopt);
  const SamplingParams& params() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The `count` most probable tokens of the raw logits, most probable first (ties: lower id first).
std::vector<TokenProbability> top_log_probabilities(std::span<const float> logits, std::size_t count);
/// Natural log of the softmax of the raw logits at `token`.
float log_probability(std::span<const float> logits, std::int32_t token);

}  // namespace quipu::engine
