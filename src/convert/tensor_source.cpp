#include "convert/tensor_source.hpp"

#include <algorithm>

namespace quipu::convert {

TensorSource TensorSource::of(const TensorView& tensor) {
  TensorSource source;
  source.info = {tensor.name, tensor.dtype, tensor.shape};
  source.parts = {tensor.data};
  source.rows_per_part = tensor.rows();
  return source;
}

std::uint64_t TensorSource::bytes() const {
  return row_bytes(info.dtype, static_cast<std::size_t>(width())) * static_cast<std::uint64_t>(row_count());
}

const std::byte* TensorSource::stored_row(std::int64_t row) const {
  if (parts.empty() || transposed || added != 0) return nullptr;
  const std::int64_t from = rows.empty() ? row : rows[static_cast<std::size_t>(row)];
  const std::size_t size = row_bytes(info.dtype, static_cast<std::size_t>(width()));
  return parts[static_cast<std::size_t>(from / rows_per_part)] +
         static_cast<std::size_t>(from % rows_per_part) * size;
}

void TensorSource::read_row(std::int64_t row, std::span<float> out) const {
  const auto n = static_cast<std::size_t>(width());
  const DTypeInfo& type = quipu::info(info.dtype);
  if (parts.empty()) {
    std::copy_n(values.begin() + row * width(), n, out.begin());
  } else if (transposed) {
    // Rows of a part's result are the columns of its matrix: [rows_per_part, columns] in row-major order.
    const std::int64_t columns = row_count() / static_cast<std::int64_t>(parts.size());
    const std::byte* part = parts[static_cast<std::size_t>(row / columns)];
    const std::byte* first = part + static_cast<std::size_t>(row % columns) * type.block_bytes;
    const std::size_t stride = static_cast<std::size_t>(columns) * type.block_bytes;
    for (std::size_t i = 0; i < n; ++i) type.decode(first + i * stride, &out[i], 1);
  } else {
    const std::int64_t from = rows.empty() ? row : rows[static_cast<std::size_t>(row)];
    const std::size_t size = row_bytes(info.dtype, n);
    type.decode(parts[static_cast<std::size_t>(from / rows_per_part)] +
                    static_cast<std::size_t>(from % rows_per_part) * size,
                out.data(), n);
  }
  if (added != 0)
    for (float& value : out.first(n)) value += added;
}

std::span<const std::byte> TensorSource::stored_bytes() const {
  if (parts.size() != 1 || !rows.empty() || transposed || added != 0) return {};
  return {parts.front(), bytes()};
}

}  // namespace quipu::convert
