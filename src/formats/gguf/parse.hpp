// One file's container, checked against its bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/gguf/gguf.hpp"

namespace quipu::gguf {

struct Container {
  std::uint32_t version = 0;
  Metadata metadata;
  std::vector<TensorView> tensors;
  std::vector<std::size_t> by_name;  ///< indices into tensors, sorted by name
  std::uint64_t alignment = 32;
  std::uint64_t data_end = 0;  ///< offset after the last tensor's last byte, or after the header
};

/// Throws `Error` (bad_file, unsupported) for the first rule of the format that `bytes` breaks.
Container parse_container(std::span<const std::byte> bytes, const std::string& name);

}  // namespace quipu::gguf
