// Pages of keys and values in a folder, found again by the tokens up to their end. Layout:
// docs/state-files.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "memory/kv_cache.hpp"

namespace quipu::memory {

struct PageStoreOptions {
  std::filesystem::path folder;  ///< this process's alone; made when it is not there
  std::uint64_t max_bytes = 0;   ///< of all files; the ones used longest ago go first
  /// Of whatever decides a page's bytes besides tokens and cache types: the model, the build.
  std::uint64_t fingerprint = 0;
};

struct PageStoreStats {
  std::uint64_t pages = 0, bytes = 0;
  std::uint64_t loaded = 0, damaged = 0;  ///< since the start
};

/// A file a page. Files are neither synced nor trusted: one that is cut, damaged, of another model or of
/// other tokens is not there. Failures to write are logged, never thrown. One pool; not thread-safe.
class PageStore {
 public:
  /// Finds the files that earlier processes left. Throws `Error` (io) when the folder cannot be used.
  PageStore(PagePool& pool, const PageStoreOptions& options);

  /// `tokens`: all of them, from the first to the page's last; a multiple of the page size.
  bool holds(std::span<const std::int32_t> tokens) const;
  void put(std::span<const std::int32_t> tokens, std::uint32_t page);
  /// Fills `page`. False when there is no good file; its content is undefined then.
  bool get(std::span<const std::int32_t> tokens, std::uint32_t page);
  const PageStoreStats& stats() const { return stats_; }

 private:
  struct File {
    std::string name;
    std::uint64_t bytes;
  };
  std::string name_of(std::span<const std::int32_t> tokens) const;
  void remember(std::string name, std::uint64_t bytes);
  void forget(const std::string& name);
  bool read(const std::filesystem::path& path, std::span<const std::int32_t> tokens, std::uint32_t page);

  PagePool& pool_;
  std::filesystem::path folder_;
  std::uint64_t max_bytes_, fingerprint_;
  std::list<File> files_;  // the last used one behind
  std::unordered_map<std::string, std::list<File>::iterator> index_;
  PageStoreStats stats_;
  std::vector<std::byte> buffer_;
  bool told_ = false;
};

}  // namespace quipu::memory
