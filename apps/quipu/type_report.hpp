// What a command says of the types it chose.
#pragma once

#include <span>

#include "convert/mixes.hpp"

namespace quipu::app {

/// On stderr, one line for each pair of types: how many tensors did not get the type the mix asked for, and
/// the first of them.
void tell_fallbacks(std::span<const gguf::TensorInfo> tensors, std::span<const convert::TensorPlan> plan);

}  // namespace quipu::app
