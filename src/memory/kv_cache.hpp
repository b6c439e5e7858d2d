// What a sequence remembers: pages of keys and values from one pool.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.hpp"
#include "graph/graph.hpp"
#include "graph/step.hpp"

namespace quipu::memory {

inline constexpr auto kPage = static_cast<std::size_t>(graph::kPagePositions);  ///< positions

struct KvOptions {
  DType k_dtype = DType::f16;  ///< f32, f16, bf16, q8_0 (head sizes that are multiples of 32)
  DType v_dtype = DType::f16;
  std::uint32_t pages = 0;  ///< capacity of the pool in pages of graph::kPagePositions positions
  /// Hand pages out in a shuffled order instead of ascending: page numbers must not matter, and tests make
  /// sure. The build option QUIPU_SCATTER_PAGES makes it the default.
#ifdef QUIPU_SCATTER_PAGES
  bool scatter = true;
#else
  bool scatter = false;
#endif
};

/// What a page's bytes mean: a state file is only good for a pool of the same shape.
struct PageShape {
  DType k_dtype = DType::f16, v_dtype = DType::f16;
  std::uint32_t key_dim = 0, value_dim = 0;  ///< head sizes: the largest of all layers
  std::vector<std::uint32_t> kv_heads;       ///< per cache layer; 0: the layer is not used
  std::vector<graph::KvShape> layers;
  std::uint32_t vocab = 0;  ///< bound of the token ids
};

/// All layers' pages, with reference counts. Not thread-safe: owned by one engine.
class PagePool {
 public:
  /// Allocates the whole pool from `device`; the operating system provides the bytes when they are first
  /// written. The backend must outlive the pool. `layers`: Graph::kv_shapes; `vocab`: bound of the token ids.
  /// Throws `Error` (out_of_memory, invalid_argument for a dtype or head size that does not fit).
  PagePool(backends::Backend& backend, int device, std::span<const graph::KvShape> layers,
           std::uint32_t vocab, const KvOptions& options);
  ~PagePool();

  /// A page with count 1, or nothing when the pool is exhausted.
  std::optional<std::uint32_t> take();
  void add_reference(std::uint32_t page);
  void release(std::uint32_t page);  ///< count - 1; at 0 the page is free again
  std::uint32_t references(std::uint32_t page) const;
  void copy_page(std::uint32_t from, std::uint32_t to);  ///< all layers
  /// Layer after layer, keys before values, each [kv_heads][graph::kPagePositions][head_dim].
  std::span<std::byte> page(std::uint32_t page);
  std::span<const std::byte> page(std::uint32_t page) const;

  std::uint32_t capacity() const;
  std::uint32_t free_pages() const;
  std::size_t page_bytes() const;  ///< of one page over all layers, keys and values
  std::span<const graph::KvLayer> layers() const;
  const KvOptions& options() const;
  const PageShape& shape() const;

  /// Bytes of one page over all pools for a model, before anything is allocated.
  static std::size_t bytes_per_page(std::span<const graph::KvShape> layers, DType k, DType v);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct ParsedState;  // memory/state_file.hpp

/// One sequence's page table. Forks share pages; a shared page is copied before it is written. A moved-from
/// sequence is empty and usable.
class Sequence {
 public:
  /// `content_key`: what keys and values depend on besides the tokens and the model (a digest of adapters and
  /// their scales); 0: nothing.
  explicit Sequence(std::shared_ptr<PagePool> pool, std::uint64_t content_key = 0);
  ~Sequence();
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;

  std::int64_t length() const { return static_cast<std::int64_t>(tokens_.size()); }
  /// Ids of the tokens whose keys and values are stored, by position.
  std::span<const std::int32_t> tokens() const { return tokens_; }
  std::span<const std::uint32_t> pages() const { return pages_; }
  std::uint64_t content_key() const { return content_key_; }

  /// Makes room for `count` more positions, all of them writable (copy on write). False, and nothing changed,
  /// when the pool has too few free pages.
  bool reserve(std::int64_t count);
  /// Records tokens whose keys and values the step just wrote.
  void append(std::span<const std::int32_t> tokens);
  /// Forgets positions >= length; pages that hold none of the rest go back to the pool.
  void truncate(std::int64_t length);
  /// A second sequence with the same content.
  Sequence fork() const;
  std::size_t bytes() const;  ///< of its pages, shared ones included
  const std::shared_ptr<PagePool>& pool() const { return pool_; }

  /// Takes over a full page that holds the next graph::kPagePositions tokens (the prefix tree's). The length
  /// must be a multiple of the page size; adds a reference.
  void append_shared_page(std::uint32_t page, std::span<const std::int32_t> tokens);
  /// Takes a free page, which there must be, for a copy of one that begins with the next tokens, fewer than
  /// graph::kPagePositions. The length must be a multiple of the page size.
  void append_copied_page(std::uint32_t page, std::span<const std::int32_t> tokens);
  /// Whether some of the content was restored from a file: it is as good as the file, and stays with whoever
  /// asked for it.
  bool from_file() const { return from_file_; }

  /// Writes tokens and pages to a state file (atomic; header with format version, fingerprint of model and
  /// content key, dtypes; a checksum per section). Layout: docs/state-files.md.
  void save(const std::filesystem::path& path, std::uint64_t fingerprint) const;
  /// Replaces the content by a state file's. Throws `Error`: not_found, bad_file (cut, damaged, another
  /// version), checksum, invalid_argument (another model, adapters or cache dtype), out_of_memory (too few
  /// pages); the sequence is then unchanged.
  void restore(const std::filesystem::path& path, std::uint64_t fingerprint);
  /// The same from the bytes of a state file; `name` is used in messages.
  void restore(std::span<const std::byte> bytes, std::string_view name, std::uint64_t fingerprint);
  /// The same in pieces: takes over at most so many of the state's next pages, less when the pool has none
  /// left, and returns how many. The sequence must have been empty before the first piece.
  std::size_t append_state(const ParsedState& state, std::size_t most);

 private:
  std::shared_ptr<PagePool> pool_;
  std::uint64_t content_key_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::uint32_t> pages_;
  bool from_file_ = false;
};

}  // namespace quipu::memory
