// From a family's table and a checkpoint to the tensors of the GGUF file.
#pragma once

#include <string>
#include <vector>

#include "convert/family.hpp"
#include "formats/safetensors/safetensors.hpp"

namespace quipu::convert {

/// Appends the tensors of every rule to `job.tensors`, blocks in order. Throws `Error`: a tensor that is
/// missing, has another shape or a type that is no weight, or that no rule has a place for.
void plan_tensors(const Family& family, const safetensors::File& weights, Job& job);

}  // namespace quipu::convert
