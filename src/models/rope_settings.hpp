// The `<architecture>.rope.*` keys and the user's overrides, as one validated setting.
#pragma once

#include <string>
#include <vector>

#include "models/keys.hpp"
#include "models/model.hpp"

namespace quipu::models {

/// Fills rope_freq_base, rope_scaling and trained_context (which must hold the file's context_length).
void read_rope_settings(const Keys& keys, const RopeOverrides& overrides, Hyperparameters& hyper,
                        std::vector<std::string>& warnings);

}  // namespace quipu::models
