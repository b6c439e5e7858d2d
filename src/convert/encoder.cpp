#include "convert/encoder.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/error.hpp"

namespace quipu::convert {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{32} << 20;  // encoded bytes held at once

}  // namespace

void check_codec(const gguf::TensorInfo& tensor, DType to, const std::string& file) {
  if (tensor.dtype == to) return;  // copied
  if (info(tensor.dtype).decode == nullptr)
    fail(ErrorCode::unsupported, "{}: tensor \"{}\": quipu cannot decode {} yet", printable(file, 1000),
         printable(tensor.name), to_string(tensor.dtype));
  if (info(to).encode == nullptr) fail(ErrorCode::unsupported, "quipu cannot encode {} yet", to_string(to));
}

void Encoder::encode(const TensorSource& source, DType to, const std::string& file, const Sink& sink,
                     const Progress& progress) {
  const auto width = static_cast<std::size_t>(source.width());
  const auto rows = static_cast<std::size_t>(source.row_count());
  const std::size_t in_bytes = row_bytes(source.info.dtype, width), out_bytes = row_bytes(to, width);
  const std::size_t chunk = std::clamp<std::size_t>(kChunkBytes / out_bytes, 1, rows);
  const bool same_type = source.info.dtype == to;
  if (const auto stored = source.stored_bytes(); same_type && !stored.empty()) {
    for (std::size_t done = 0; done < stored.size(); done += kChunkBytes) {
      const std::size_t size = std::min(kChunkBytes, stored.size() - done);
      sink(stored.subspan(done, size));
      if (progress) progress(done + size);
    }
    return;
  }
  for (std::size_t first = 0; first < rows; first += chunk) {
    const std::size_t count = std::min(chunk, rows - first);
    out_.resize(count * out_bytes);
    std::atomic<std::size_t> bad_row{SIZE_MAX};
    pool_.run([&](int thread) {
      std::vector<float>& row = rows_[static_cast<std::size_t>(thread)];
      row.resize(width);
      const Range own = share(count, thread, pool_.size());
      for (std::size_t r = own.begin; r < own.end; ++r) {
        std::byte* target = out_.data() + r * out_bytes;
        const auto number = static_cast<std::int64_t>(first + r);
        if (same_type && source.copy_row(number, target)) continue;
        source.read_row(number, row);
        if (!std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); })) {
          std::size_t seen = bad_row.load();
          while (first + r < seen && !bad_row.compare_exchange_weak(seen, first + r)) {
          }
          return;
        }
        info(to).encode(row.data(), target, width);
      }
    });
    if (bad_row.load() != SIZE_MAX)
      fail(ErrorCode::bad_file, "{}: tensor \"{}\" holds NaN or infinity in row {}", printable(file, 1000),
           printable(source.info.name), bad_row.load());
    sink(out_);
    if (progress) progress((first + count) * in_bytes);
  }
}

}  // namespace quipu::convert
