// Saving a sequence to a state file and reading it back.
#include <cstring>

#include "core/atomic_file.hpp"
#include "core/checksum.hpp"
#include "core/error.hpp"
#include "core/mapped_file.hpp"
#include "memory/state_file.hpp"

namespace quipu::memory {

namespace {

/// Copies between the pool's layers and a contiguous page (per layer: keys, then values).
void gather_page(const PagePool& pool, std::uint32_t page, std::byte* out) {
  for (const graph::KvLayer& kv : pool.layers()) {
    std::memcpy(out, kv.k + page * kv.k_page_bytes, kv.k_page_bytes);
    out += kv.k_page_bytes;
    std::memcpy(out, kv.v + page * kv.v_page_bytes, kv.v_page_bytes);
    out += kv.v_page_bytes;
  }
}

void scatter_page(const PagePool& pool, std::uint32_t page, const std::byte* in) {
  for (const graph::KvLayer& kv : pool.layers()) {
    std::memcpy(kv.k + page * kv.k_page_bytes, in, kv.k_page_bytes);
    in += kv.k_page_bytes;
    std::memcpy(kv.v + page * kv.v_page_bytes, in, kv.v_page_bytes);
    in += kv.v_page_bytes;
  }
}

/// Zeroes the positions from `used` on: they hold leftovers of other sequences, or nothing.
void clear_unused(const PagePool& pool, std::size_t used, std::byte* page) {
  const auto clear_side = [&](std::size_t side_bytes, DType dtype, std::uint32_t head_dim) {
    const std::size_t row = quipu::row_bytes(dtype, head_dim);
    const std::size_t head = row * static_cast<std::size_t>(graph::kPagePositions);
    for (std::size_t at = 0; at < side_bytes; at += head)
      std::memset(page + at + used * row, 0, head - used * row);
    page += side_bytes;
  };
  for (const graph::KvLayer& kv : pool.layers()) {
    clear_side(kv.k_page_bytes, kv.k_dtype, pool.shape().key_dim);
    clear_side(kv.v_page_bytes, kv.v_dtype, pool.shape().value_dim);
  }
}

}  // namespace

void Sequence::save(const std::filesystem::path& path, std::uint64_t fingerprint) const {
  StateLayout layout;
  if (!state_layout(pool_->shape(), pool_->page_bytes(), tokens_.size(), layout)) {
    fail(ErrorCode::internal, "a sequence of {} tokens is too long for a state file", tokens_.size());
  }
  AtomicFileWriter file(path);
  file.append(encode_state_head(pool_->shape(), layout, fingerprint, tokens_));
  std::vector<std::byte> record(layout.page_stride);
  const auto page_positions = static_cast<std::size_t>(graph::kPagePositions);
  for (std::size_t i = 0; i < layout.pages; ++i) {
    gather_page(*pool_, pages_[i], record.data());
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
  ParsedState state = parse_state(bytes, name, pool_->shape(), pool_->page_bytes(), fingerprint);
  std::size_t available = pool_->free_pages();
  for (const std::uint32_t page : pages_) available += pool_->references(page) == 1 ? 1 : 0;
  if (state.layout.pages > available) {
    fail(ErrorCode::out_of_memory, "{}: {} tokens need {} cache pages, {} are free", name,
         state.tokens.size(), state.layout.pages, available);
  }
  truncate(0);  // nothing can fail from here on
  for (std::uint64_t i = 0; i < state.layout.pages; ++i) {
    pages_.push_back(*pool_->take());
    scatter_page(*pool_, pages_.back(),
                 bytes.data() + state.layout.pages_offset + i * state.layout.page_stride);
  }
  tokens_ = std::move(state.tokens);
}

}  // namespace quipu::memory
