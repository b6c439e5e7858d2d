#include "convert/tensor_source.hpp"

#include <algorithm>
#include <cstring>

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
  const std::int64_t from = source_row(row);
  if (from < 0) return nullptr;
  const std::size_t size = row_bytes(info.dtype, static_cast<std::size_t>(width()));
  return parts[static_cast<std::size_t>(from / rows_per_part)] +
         static_cast<std::size_t>(from % rows_per_part) * size;
}

bool TensorSource::copy_row(std::int64_t row, std::byte* out) const {
  if (parts.empty() || transposed || changes_values() || source_row(row) < 0) return false;
  if (scales != nullptr)
    pack_mxfp4(row, out);
  else
    std::memcpy(out, stored_row(row), row_bytes(info.dtype, static_cast<std::size_t>(width())));
  return true;
}

/// GGUF's blocks: the scale, then values i and i + 16 in one byte.
void TensorSource::pack_mxfp4(std::int64_t row, std::byte* out) const {
  constexpr std::size_t bytes = 16;  // of 32 values
  const std::size_t blocks = static_cast<std::size_t>(width()) / (2 * bytes);
  const std::size_t first = static_cast<std::size_t>(source_row(row)) * blocks;
  const auto value = [](const std::byte* nibbles, std::size_t i) {
    return i % 2 == 0 ? nibbles[i / 2] & std::byte{15} : nibbles[i / 2] >> 4;
  };
  for (std::size_t block = first; block < first + blocks; ++block) {
    const std::byte* nibbles = parts.front() + block * bytes;
    *out++ = scales[block];
    for (std::size_t i = 0; i < bytes; ++i) *out++ = value(nibbles, i) | value(nibbles, i + bytes) << 4;
  }
}

void TensorSource::read_row(std::int64_t row, std::span<float> out) const {
  const auto n = static_cast<std::size_t>(width());
  const DTypeInfo& type = quipu::info(info.dtype);
  if (parts.empty()) {
    std::copy_n(values.begin() + row * width(), n, out.begin());
  } else if (transposed) {
    // Rows of a part's result are the columns of its matrix: [rows_per_part, columns] in row-major order.
    const std::int64_t from = source_row(row);
    const std::byte* first = parts[static_cast<std::size_t>(from / columns)] +
                             static_cast<std::size_t>(from % columns) * type.block_bytes;
    const std::size_t stride = static_cast<std::size_t>(columns) * type.block_bytes;
    for (std::size_t i = 0; i < n; ++i) type.decode(first + i * stride, &out[i], 1);
  } else if (scales != nullptr) {
    std::vector<std::byte> packed(row_bytes(info.dtype, n));
    pack_mxfp4(row, packed.data());
    type.decode(packed.data(), out.data(), n);
  } else {
    if (source_row(row) < 0)
      std::fill_n(out.begin(), n, 0.0f);
    else
      type.decode(stored_row(row), out.data(), n);
  }
  if (added != 0)
    for (float& value : out.first(n)) value += added;
  for (std::size_t i = 0; i < column_divisors.size(); ++i) out[i] /= column_divisors[i];
}

std::span<const std::byte> TensorSource::stored_bytes() const {
  if (parts.size() != 1 || !rows.empty() || transposed || scales != nullptr || changes_values()) return {};
  return {parts.front(), bytes()};
}

}  // namespace quipu::convert
