// Log probabilities of a drawn token and of the best ones, in one pass over the logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampling/sampler.hpp"

namespace quipu::engine {

/// As the function of two arguments in sampler.hpp; also gives the log probability of `token`, which must be
/// in the vocabulary.
std::vector<TokenProbability> top_log_probabilities(std::span<const float> logits, std::size_t count,
                                                    std::int32_t token, float& of_token);

}  // namespace quipu::engine
