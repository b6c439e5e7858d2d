#include <array>

#include "core/error.hpp"
#include "models/model.hpp"

namespace quipu::models {

TensorView WeightSource::get(std::string_view name, std::initializer_list<std::int64_t> shape) const {
  if (auto tensor = find(name, shape)) return *std::move(tensor);
  fail(ErrorCode::bad_file, "{}: tensor {} is missing", printable(file_->name()), printable(name));
}

std::int64_t WeightSource::size(std::string_view name, std::size_t dimension) const {
  const TensorView* tensor = file_->find_tensor(name);
  return tensor == nullptr ? 0 : tensor->shape[dimension];
}

std::optional<TensorView> WeightSource::find(std::string_view name,
                                             std::initializer_list<std::int64_t> shape) const {
  const TensorView* tensor = file_->find_tensor(name);
  if (tensor == nullptr) return std::nullopt;

  TensorView expected;
  std::copy(shape.begin(), shape.end(), expected.shape.begin());
  if (tensor->shape != expected.shape)
    fail(ErrorCode::bad_file, "{}: tensor {} is {}, expected {}", printable(file_->name()), printable(name),
         shape_text(*tensor), shape_text(expected));
  const DTypeInfo& type = info(tensor->dtype);
  if (type.is_integer)
    fail(ErrorCode::bad_file, "{}: tensor {} has the integer type {}, expected a type for weights",
         printable(file_->name()), printable(name), type.name);
  if (type.decode == nullptr)
    fail(ErrorCode::unsupported, "{}: tensor {} has type {}, which cannot be decoded yet",
         printable(file_->name()), printable(name), type.name);
  if (used_ != nullptr) used_->insert(tensor->name);
  return *tensor;
}

}  // namespace quipu::models
