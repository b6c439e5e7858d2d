// A file that appears whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace quipu {

/// Streams bytes into a temporary file beside `path`; `commit()` makes it durable (fsync) and renames it to
/// `path`. Until then the old file, if any, is untouched. Destroyed without commit: the temporary file is
/// removed. Every failure (no space, no permission, not a folder) throws `Error` (not_found, io) that names
/// `path`. A symbolic link is followed: its target is replaced. One thread at a time.
class AtomicFileWriter {
 public:
  explicit AtomicFileWriter(const std::filesystem::path& path);
  AtomicFileWriter(AtomicFileWriter&& other) noexcept;
  AtomicFileWriter& operator=(AtomicFileWriter&&) = delete;
  ~AtomicFileWriter();

  void append(std::span<const std::byte> bytes);
  /// Bytes appended so far.
  std::uint64_t size() const { return size_; }
  /// No append after this.
  void commit();

 private:
  void write_all(const std::byte* data, std::size_t size);
  void flush();
  void discard() noexcept;
  [[noreturn]] void fail_write(const char* what, int error);

  std::filesystem::path path_;    // as the caller named it, for messages
  std::filesystem::path target_;  // with links resolved
  std::filesystem::path temporary_;
  std::vector<std::byte> buffer_;
  std::uint64_t size_ = 0;
  int descriptor_ = -1;
};

/// Whether a file of this name is the temporary one of a writer.
bool is_temporary_name(std::string_view name);
/// Removes the temporary files in `folder` of writers whose process has ended, killed as it wrote. Ignores
/// what cannot be read or removed; returns how many are gone.
std::size_t remove_abandoned_files(const std::filesystem::path& folder);

}  // namespace quipu
