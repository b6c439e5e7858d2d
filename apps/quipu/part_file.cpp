#include "part_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "core/error.hpp"
#include "interrupt.hpp"
#include "output.hpp"
#include "progress.hpp"

namespace quipu::app {
namespace {

/// True when `fd` is still the file that `path` names (another process may have renamed or removed it).
bool still_named(int fd, const std::filesystem::path& path) {
  struct stat by_fd, by_path;
  return ::fstat(fd, &by_fd) == 0 && ::stat(path.c_str(), &by_path) == 0 && by_fd.st_ino == by_path.st_ino &&
         by_fd.st_dev == by_path.st_dev;
}

}  // namespace

PartFile::PartFile(std::filesystem::path destination)
    : destination_(std::move(destination)), path_(destination_.string() + ".part") {
  std::error_code error;
  std::filesystem::create_directories(destination_.parent_path(), error);
  if (error)
    fail(ErrorCode::io, "cannot create the folder {}: {} (QUIPU_CACHE chooses another)",
         printable(destination_.parent_path().string()), error.message());
  bool told = false;
  while (true) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0)
      fail(ErrorCode::io, "cannot write {}: {} (QUIPU_CACHE chooses another folder)",
           printable(path_.string()), std::strerror(errno));
    while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR)  // a file system without locks: go on alone
        break;
      if (!told)
        write_stderr("waiting for another quipu that downloads " + destination_.filename().string() + "\n");
      told = true;
      exit_if_interrupted();
      ::usleep(200'000);
    }
    if (still_named(fd_, path_)) break;
    ::close(fd_);
  }
  hash_existing();
}

PartFile::~PartFile() {
  if (fd_ < 0) return;
  if (!committed_ && (size_ == 0 || !keep_)) ::unlink(path_.c_str());
  ::close(fd_);
}

void PartFile::hash_existing() {
  std::vector<char> buffer(1 << 20);
  while (true) {
    const ssize_t count = ::read(fd_, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(ErrorCode::io, "cannot read {}: {}", printable(path_.string()), std::strerror(errno));
    if (count == 0) return;
    hash_.update(buffer.data(), static_cast<std::size_t>(count));
    size_ += static_cast<std::uint64_t>(count);
  }
}

void PartFile::append(const void* data, std::size_t size) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t count = ::write(fd_, bytes, size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int reason = errno;
      if (reason == ENOSPC || reason == EDQUOT || reason == EFBIG) discard();
      fail(ErrorCode::io, "cannot write {} beyond {}: {}", printable(path_.string()), size_text(size_),
           std::strerror(reason));
    }
    hash_.update(bytes, static_cast<std::size_t>(count));
    bytes += count;
    size -= static_cast<std::size_t>(count);
    size_ += static_cast<std::uint64_t>(count);
  }
}

void PartFile::restart() {
  if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0)
    fail(ErrorCode::io, "cannot empty {}: {}", printable(path_.string()), std::strerror(errno));
  size_ = 0;
  hash_ = Sha256();
}

std::string PartFile::sha256() { return hash_.hex(); }

void PartFile::commit() {
  if (::fsync(fd_) != 0 || ::rename(path_.c_str(), destination_.c_str()) != 0)
    fail(ErrorCode::io, "cannot finish {}: {}", printable(destination_.string()), std::strerror(errno));
  committed_ = true;
}

void PartFile::require_space(std::uint64_t bytes) const {
  struct statvfs fs;
  if (::statvfs(path_.c_str(), &fs) != 0) return;
  const std::uint64_t available = static_cast<std::uint64_t>(fs.f_bavail) * fs.f_frsize;
  if (available < bytes)
    fail(ErrorCode::io,
         "not enough disk space in {}: {} are needed and {} are free (QUIPU_CACHE chooses another folder)",
         printable(destination_.parent_path().string()), size_text(bytes), size_text(available));
}

}  // namespace quipu::app
