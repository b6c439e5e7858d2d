// A named, typed, shaped view of bytes owned by somebody else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tensor/dtype.hpp"

namespace quipu {

/// Shape in GGUF order: shape[0] is the contiguous row width (K of a matrix), shape[1] the number of rows
/// (N). Unused dimensions are 1.
struct TensorView {
  std::string name;
  DType dtype = DType::f32;
  std::array<std::int64_t, 4> shape{1, 1, 1, 1};
  const std::byte* data = nullptr;

  std::int64_t width() const { return shape[0]; }
  std::int64_t rows() const { return shape[1] * shape[2] * shape[3]; }
  std::int64_t elements() const { return width() * rows(); }
  std::size_t row_bytes() const { return quipu::row_bytes(dtype, static_cast<std::size_t>(shape[0])); }
  std::size_t bytes() const { return row_bytes() * static_cast<std::size_t>(rows()); }
};

/// "16x32" style text for messages: dimensions in GGUF order without trailing ones.
std::string shape_text(const TensorView& tensor);

}  // namespace quipu
