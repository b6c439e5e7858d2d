// Saving a sequence to a state file and reading it back.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/atomic_file.hpp"
#include "core/checksum.hpp"
#include "core/error.hpp"
#include "core/mapped_file.hpp"
#include "memory/state_file.hpp"

namespace quipu::memory {

namespace {

/// Zeroes the positions from `used` on: they hold leftovers of other sequences, or nothing.
void clear_unused(const PagePool& pool, std::size_t used, std::byte* page) {
  const PageShape& shape = pool.shape();
  const auto clear_side = [&](std::int64_t heads, DType dtype, std::int64_t head_dim) {
    const std::size_t row = quipu::row_bytes(dtype, static_cast<std::size_t>(head_dim));
    const std::size_t head_bytes = row * static_cast<std::size_t>(graph::kPagePositions);
    for (std::int64_t head = 0; head < heads; ++head, page += head_bytes)
      std::memset(page + used * row, 0, head_bytes - used * row);
  };
  for (const graph::KvShape& layer : shape.layers) {
    clear_side(layer.kv_heads, shape.k_dtype, layer.key_dim);
    clear_side(layer.kv_heads, shape.v_dtype, layer.value_dim);
  }
}

}  // namespace

void Sequence::save(const std::filesystem::path& path, std::uint64_t fingerprint) const {
  StateLayout layout;
  if (!state_layout(pool_->shape(), pool_->page_bytes(), tokens_.size(), layout)) {
    fail(ErrorCode::internal, "a sequence of {} tokens is too long for a state file", tokens_.size());
  }
  AtomicFileWriter file(path);
  file.append(encode_state_head(pool_->shape(), layout, fingerprint ^ content_key_, tokens_));
  std::vector<std::byte> record(layout.page_stride);
  const auto page_positions = static_cast<std::size_t>(graph::kPagePositions);
  for (std::size_t i = 0; i < layout.pages; ++i) {
    std::ranges::copy(std::as_const(*pool_).page(pages_[i]), record.begin());
    const std::size_t used = tokens_.size() - i * page_positions;
    if (used < page_positions) clear_unused(*pool_, used, record.data());
    const std::uint64_t checksum = xxh64(std::span(record).first(pool_->page_bytes()), i);
    std::memcpy(record.data() + pool_->page_bytes(), &checksum, sizeof checksum);
    file.append(record);
  }
  file.commit();
}

void Sequence::restore(const std::filesystem::path& path, std::uint64_t fingerprint) {
  const MappedFile file(path);
  restore(file.bytes(), printable(path.string()), fingerprint);
}

void Sequence::restore(std::span<const std::byte> bytes, std::string_view name, std::uint64_t fingerprint) {
  ParsedState state =
      parse_state(bytes, name, pool_->shape(), pool_->page_bytes(), fingerprint ^ content_key_);
  std::size_t available = pool_->free_pages();
  for (const std::uint32_t page : pages_) available += pool_->references(page) == 1 ? 1 : 0;
  if (state.layout.pages > available) {
    fail(ErrorCode::out_of_memory, "{}: {} tokens need {} cache pages, {} are free", name,
         state.tokens.size(), state.layout.pages, available);
  }
  truncate(0);  // nothing can fail from here on
  append_state(state, state.layout.pages);
}

std::size_t Sequence::append_state(const ParsedState& state, std::size_t most) {
  std::size_t added = 0;
  for (; added < most && pages_.size() < state.layout.pages; ++added) {
    const std::optional<std::uint32_t> page = pool_->take();
    if (!page) break;
    std::ranges::copy(state.page(pages_.size()), pool_->page(*page).data());
    pages_.push_back(*page);
    const auto rest = std::span(state.tokens).subspan(tokens_.size());
    const auto part = rest.first(std::min(rest.size(), kPage));
    tokens_.insert(tokens_.end(), part.begin(), part.end());
    from_file_ = true;
  }
  return added;
}

}  // namespace quipu::memory
