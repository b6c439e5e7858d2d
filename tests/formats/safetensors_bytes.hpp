// safetensors files made by hand: a header text and as many bytes of data as asked for.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace quipu::test {

inline std::string safetensors_bytes(const std::string& header, std::size_t data) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i)
    bytes[i] = static_cast<char>(static_cast<std::uint64_t>(header.size()) >> (8 * i) & 0xFF);
  bytes += header;
  for (std::size_t i = 0; i < data; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace quipu::test
