// Pages of keys and values: one allocation, reference counts, a stack of free pages.
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "core/philox.hpp"
#include "memory/kv_cache.hpp"

namespace quipu::memory {

namespace {

bool is_cache_dtype(DType dtype) {
  return std::ranges::find(graph::kCacheDtypes, dtype) != graph::kCacheDtypes.end();
}

/// Bytes of `heads` heads of one page of one layer.
std::size_t side_bytes(std::int64_t heads, std::int64_t head_dim, DType dtype, std::string_view side) {
  if (!is_cache_dtype(dtype)) {
    fail(ErrorCode::invalid_argument,
         "the cache type of {} is {}, allowed are F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL", side,
         to_string(dtype));
  }
  if (heads == 0) return 0;
  if (head_dim == 0 || head_dim % info(dtype).block_size != 0) {
    fail(ErrorCode::invalid_argument,
         "the cache type {} of {} needs a head size that is a multiple of {}, the model's is {}",
         to_string(dtype), side, info(dtype).block_size, head_dim);
  }
  const std::size_t row = quipu::row_bytes(dtype, static_cast<std::size_t>(head_dim));
  return row * static_cast<std::size_t>(heads * graph::kPagePositions);
}

/// A fixed shuffle (Fisher-Yates on philox).
void shuffle(std::vector<std::uint32_t>& pages) {
  for (std::size_t i = pages.size(); i > 1; --i) {
    const auto j = static_cast<std::size_t>(philox_uniform(0x7061676573, i) * static_cast<double>(i));
    std::swap(pages[i - 1], pages[std::min(j, i - 1)]);
  }
}

}  // namespace

struct PagePool::Impl {
  std::unique_ptr<backends::Buffer> buffer;
  std::vector<graph::KvLayer> layers;
  std::vector<std::uint32_t> references;
  std::vector<std::uint32_t> free;  // a stack; the next one to hand out is at the back
  std::size_t page_bytes = 0;
  KvOptions options;
  PageShape shape;
};

std::size_t PagePool::bytes_per_page(std::span<const graph::KvShape> layers, DType k, DType v) {
  std::size_t bytes = 0;
  for (const graph::KvShape& layer : layers)
    bytes += side_bytes(layer.kv_heads, layer.key_dim, k, "keys") +
             side_bytes(layer.kv_heads, layer.value_dim, v, "values");
  return bytes;
}

PagePool::PagePool(backends::Backend& backend, int device, std::span<const graph::KvShape> layers,
                   std::uint32_t vocab, const KvOptions& options)
    : impl_(std::make_unique<Impl>()) {
  Impl& pool = *impl_;
  pool.options = options;
  pool.page_bytes = bytes_per_page(layers, options.k_dtype, options.v_dtype);
  pool.shape.k_dtype = options.k_dtype;
  pool.shape.v_dtype = options.v_dtype;
  pool.shape.layers.assign(layers.begin(), layers.end());
  pool.shape.vocab = vocab;
  if (pool.page_bytes > 0 && options.pages > std::numeric_limits<std::size_t>::max() / pool.page_bytes) {
    fail(ErrorCode::out_of_memory, "{} cache pages of {} bytes exceed the address space", options.pages,
         pool.page_bytes);
  }
  pool.buffer = backend.allocate(device, pool.page_bytes * options.pages);
  // A page is one piece of memory, layer after layer, keys before values: short contexts touch few pages of
  // the system, also where those are huge.
  std::byte* next = pool.buffer->data();
  for (const graph::KvShape& layer : layers) {
    graph::KvLayer kv;
    kv.k_dtype = options.k_dtype;
    kv.v_dtype = options.v_dtype;
    kv.k_page_bytes = kv.v_page_bytes = pool.page_bytes;
    kv.k = next;
    next += side_bytes(layer.kv_heads, layer.key_dim, options.k_dtype, "keys");
    kv.v = next;
    next += side_bytes(layer.kv_heads, layer.value_dim, options.v_dtype, "values");
    pool.layers.push_back(kv);
    pool.shape.key_dim = std::max(pool.shape.key_dim, static_cast<std::uint32_t>(layer.key_dim));
    pool.shape.value_dim = std::max(pool.shape.value_dim, static_cast<std::uint32_t>(layer.value_dim));
    pool.shape.kv_heads.push_back(static_cast<std::uint32_t>(layer.kv_heads));
  }
  pool.references.assign(options.pages, 0);
  pool.free.resize(options.pages);
  std::iota(pool.free.rbegin(), pool.free.rend(), 0u);
  if (options.scatter) shuffle(pool.free);
}

PagePool::~PagePool() = default;

std::optional<std::uint32_t> PagePool::take() {
  if (impl_->free.empty()) return std::nullopt;
  const std::uint32_t page = impl_->free.back();
  impl_->free.pop_back();
  impl_->references[page] = 1;
  return page;
}

void PagePool::add_reference(std::uint32_t page) { ++impl_->references[page]; }

void PagePool::release(std::uint32_t page) {
  if (--impl_->references[page] == 0) impl_->free.push_back(page);
}

std::uint32_t PagePool::references(std::uint32_t page) const { return impl_->references[page]; }

void PagePool::copy_page(std::uint32_t from, std::uint32_t to) {
  std::ranges::copy(std::as_const(*this).page(from), page(to).data());
}

std::span<std::byte> PagePool::page(std::uint32_t page) {
  return {impl_->buffer->data() + page * impl_->page_bytes, impl_->page_bytes};
}
std::span<const std::byte> PagePool::page(std::uint32_t page) const {
  return {impl_->buffer->data() + page * impl_->page_bytes, impl_->page_bytes};
}

std::uint32_t PagePool::capacity() const { return static_cast<std::uint32_t>(impl_->references.size()); }
std::uint32_t PagePool::free_pages() const { return static_cast<std::uint32_t>(impl_->free.size()); }
std::size_t PagePool::page_bytes() const { return impl_->page_bytes; }
std::span<const graph::KvLayer> PagePool::layers() const { return impl_->layers; }
const KvOptions& PagePool::options() const { return impl_->options; }
const PageShape& PagePool::shape() const { return impl_->shape; }

}  // namespace quipu::memory
