// Where the rows of a tensor to be written come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/gguf/gguf.hpp"

namespace quipu::convert {

/// A tensor as rows of other tensors: whole ones one after the other, or chosen rows in another order; with
/// the matrix turned, a number added to each value, or each divided by its column's; or values that were
/// computed. Parts point into bytes owned by somebody else.
struct TensorSource {
  gguf::TensorInfo info;  ///< name, the type of the parts, and the resulting shape in GGUF order
  std::vector<const std::byte*> parts;  ///< equally long, one after the other; empty: `values`
  std::int64_t rows_per_part = 0;       ///< rows of the source, before turning
  std::vector<std::int64_t> rows;       ///< source row of each row, -1: zeros; empty: in order
  bool transposed = false;              ///< a row of the result is a column of a part's matrix
  std::int64_t columns = 0;             ///< of each part's matrix, when transposed
  /// MXFP4 as checkpoints hold it: a byte of scale a block here, and in `parts` its 16 bytes, neighbouring
  /// values in one byte. Otherwise null.
  const std::byte* scales = nullptr;
  float added = 0;
  std::vector<float> column_divisors;  ///< one for each value of a row; empty: none
  std::vector<float> values;

  static TensorSource of(const TensorView& tensor);

  std::int64_t width() const { return info.shape[0]; }
  std::int64_t row_count() const { return info.shape[1] * info.shape[2] * info.shape[3]; }
  std::uint64_t elements() const {
    return static_cast<std::uint64_t>(width()) * static_cast<std::uint64_t>(row_count());
  }
  /// Bytes of the tensor in its source's type.
  std::uint64_t bytes() const;

  /// Writes a row in the source's type; false when its values have to be computed.
  bool copy_row(std::int64_t row, std::byte* out) const;
  /// The values of a row: `out` holds width() of them.
  void read_row(std::int64_t row, std::span<float> out) const;
  /// All bytes, when they are one stretch of the source and no value changes; otherwise empty.
  std::span<const std::byte> stored_bytes() const;

 private:
  std::int64_t source_row(std::int64_t row) const {
    return rows.empty() ? row : rows[static_cast<std::size_t>(row)];
  }
  /// Where a row lies in the source, which is not turned.
  const std::byte* stored_row(std::int64_t row) const;
  bool changes_values() const { return added != 0 || !column_divisors.empty(); }
  void pack_mxfp4(std::int64_t row, std::byte* out) const;
};

}  // namespace quipu::convert
