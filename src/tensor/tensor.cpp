#include "tensor/tensor.hpp"

namespace quipu {

std::string shape_text(const TensorView& tensor) {
  std::size_t dimensions = tensor.shape.size();
  while (dimensions > 1 && tensor.shape[dimensions - 1] == 1) --dimensions;
  std::string text;
  for (std::size_t i = 0; i < dimensions; ++i) {
    if (i > 0) text += 'x';
    text += std::to_string(tensor.shape[i]);
  }
  return text;
}

}  // namespace quipu
