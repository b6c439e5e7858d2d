// A pool of small pages, filled with numbers that tell layer, head, position and token.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "fake_backend.hpp"
#include "memory/kv_cache.hpp"

namespace quipu::test {

struct PoolSettings {
  std::uint32_t pages = 8;
  bool scatter = false;
  DType k = DType::f32, v = DType::f16;
  std::vector<std::uint32_t> kv_heads{2, 1};
  std::uint32_t key_dim = 8, value_dim = 4, vocab = 1000;
};

inline std::vector<graph::KvShape> layers_of(const PoolSettings& s) {
  std::vector<graph::KvShape> layers;
  for (const std::uint32_t heads : s.kv_heads) layers.push_back({heads, s.key_dim, s.value_dim});
  return layers;
}

/// The backend lives as long as the pool.
inline std::shared_ptr<memory::PagePool> make_pool(const PoolSettings& s = {}) {
  auto backend = std::make_shared<FakeBackend>();
  memory::KvOptions options;
  options.k_dtype = s.k;
  options.v_dtype = s.v;
  options.pages = s.pages;
  options.scatter = s.scatter;
  auto* pool = new memory::PagePool(*backend, 0, layers_of(s), s.vocab, options);
  return {pool, [backend](memory::PagePool* p) { delete p; }};
}

/// The bytes a step would write for `token` at `position` into one row of one head.
inline std::vector<std::byte> row_content(std::size_t bytes, std::size_t layer, bool value, std::size_t head,
                                          std::int64_t position, std::int32_t token) {
  std::vector<std::byte> row(bytes);
  std::uint64_t mix = static_cast<std::uint64_t>(token) * 1000003 +
                      static_cast<std::uint64_t>(position) * 101 + layer * 17 + head * 7 + (value ? 3 : 0) +
                      1;
  for (std::byte& b : row) {
    mix = mix * 6364136223846793005u + 1442695040888963407u;
    b = static_cast<std::byte>(mix >> 56);
  }
  return row;
}

/// Calls f(row pointer, row bytes, layer, is value, head) for every stored row of a position.
template <class F>
void for_each_row(const memory::Sequence& sequence, std::int64_t position, F&& f) {
  const memory::PagePool& pool = *sequence.pool();
  const std::uint32_t page = sequence.pages()[static_cast<std::size_t>(position / graph::kPagePositions)];
  const auto in_page = static_cast<std::size_t>(position % graph::kPagePositions);
  const auto side = [&](std::byte* base, std::size_t page_bytes, DType dtype, std::uint32_t dim,
                        std::size_t layer, bool value) {
    const std::size_t row = row_bytes(dtype, dim);
    const std::size_t head_bytes = row * static_cast<std::size_t>(graph::kPagePositions);
    for (std::size_t head = 0; head < pool.shape().kv_heads[layer]; ++head) {
      f(base + page * page_bytes + head * head_bytes + in_page * row, row, layer, value, head);
    }
  };
  for (std::size_t layer = 0; layer < pool.layers().size(); ++layer) {
    const graph::KvLayer& kv = pool.layers()[layer];
    side(kv.k, kv.k_page_bytes, kv.k_dtype, pool.shape().key_dim, layer, false);
    side(kv.v, kv.v_page_bytes, kv.v_dtype, pool.shape().value_dim, layer, true);
  }
}

/// Reserves, writes and appends, as a step does; false when the pool is exhausted.
inline bool extend(memory::Sequence& sequence, const std::vector<std::int32_t>& tokens) {
  if (!sequence.reserve(static_cast<std::int64_t>(tokens.size()))) return false;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::int64_t position = sequence.length() + static_cast<std::int64_t>(i);
    for_each_row(sequence, position,
                 [&](std::byte* at, std::size_t n, std::size_t layer, bool value, std::size_t head) {
                   std::memcpy(at, row_content(n, layer, value, head, position, tokens[i]).data(), n);
                 });
  }
  sequence.append(tokens);
  return true;
}

/// Number of stored rows that differ from what `extend` wrote for these tokens.
inline int wrong_rows(const memory::Sequence& sequence) {
  int wrong = 0;
  for (std::int64_t position = 0; position < sequence.length(); ++position) {
    const std::int32_t token = sequence.tokens()[static_cast<std::size_t>(position)];
    for_each_row(sequence, position,
                 [&](std::byte* at, std::size_t n, std::size_t layer, bool value, std::size_t head) {
                   wrong +=
                       std::memcmp(at, row_content(n, layer, value, head, position, token).data(), n) != 0;
                 });
  }
  return wrong;
}

inline std::vector<std::int32_t> numbers(std::int32_t first, std::size_t count) {
  std::vector<std::int32_t> tokens(count);
  for (std::size_t i = 0; i < count; ++i) tokens[i] = first + static_cast<std::int32_t>(i);
  return tokens;
}

}  // namespace quipu::test
