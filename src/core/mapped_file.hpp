// A read-only file as a span of bytes: memory-mapped, or read into memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace quipu {

class HugePages;

/// The bytes stay valid while the object lives. Movable, not copyable. Several threads may read.
class MappedFile {
 public:
  enum class Mode { map, read };

  MappedFile();
  /// Throws `Error` (not_found, io) that names the path: missing, a directory, unreadable. An empty file
  /// gives an empty span.
  explicit MappedFile(const std::filesystem::path& path, Mode mode = Mode::map);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }
  /// Tells the kernel that the whole file will be needed soon.
  void prefetch() const;
  /// Pins the bytes into memory; false when the system refuses.
  bool lock();
  /// Moves mapped bytes into huge pages, in the background, after `delay` (core/huge_pages.hpp). Needs as
  /// much memory as the file has bytes, though the page cache can give it.
  void move_to_huge_pages(std::chrono::milliseconds delay = {});

 private:
  void release() noexcept;
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool mapped_ = false, locked_ = false;
  std::unique_ptr<HugePages> huge_pages_;
};

/// Writes `bytes` to `path` so that either the old or the whole new file is there afterwards: temporary file
/// in the same folder, fsync, rename. On failure the temporary file is removed and `Error` (io) names the
/// path.
void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);

}  // namespace quipu
