// The unfinished file of a download: `<name>.part`, locked, verified, then renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "sha256.hpp"

namespace quipu::app {

/// Opens or creates `<destination>.part` and locks it against other processes (waiting for them). Bytes that
/// an earlier attempt left are kept and count as the beginning. When the object ends without `commit`, an
/// empty part is removed and a part with bytes stays for the next attempt, unless `discard` was called.
class PartFile {
 public:
  /// Creates the folders above it. Throws `Error` (io) that names the path.
  explicit PartFile(std::filesystem::path destination);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  const std::filesystem::path& destination() const { return destination_; }
  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }

  /// Throws `Error` (io); when the disk is full or over quota the part is discarded, since it only fills it.
  void append(const void* data, std::size_t size);
  /// Back to no bytes.
  void restart();
  /// The part will be removed with the object's end.
  void discard() { keep_ = false; }
  /// Digest of all bytes.
  std::string sha256();
  /// Flushes to disk and renames to the destination.
  void commit();
  /// Throws `Error` (io) unless the disk has room for `bytes` more.
  void require_space(std::uint64_t bytes) const;

 private:
  void hash_existing();
  std::filesystem::path destination_, path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
  Sha256 hash_;
  bool keep_ = true, committed_ = false;
};

}  // namespace quipu::app
