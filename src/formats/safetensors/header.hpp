// The JSON header of a safetensors file.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "formats/safetensors/safetensors.hpp"

namespace quipu::safetensors {

struct Header {
  std::vector<Tensor> tensors;  ///< in file order; bytes are views into the file
  std::vector<Entry> metadata;
};

/// Throws `Error` (bad_file): everything about the file that contradicts the format.
Header parse_header(std::span<const std::byte> bytes, const std::string& file);

}  // namespace quipu::safetensors
