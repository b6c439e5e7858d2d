#include "core/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/mapped_file.hpp"

namespace quipu {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;
constexpr std::string_view kTemporaryMark = ".tmp-";
constexpr std::size_t kLargestWrite = 1 << 30;  // the kernel takes at most 2 GiB a call

// Makes the rename itself durable. Some file systems refuse to sync a folder; the file is whole all the same.
void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

/// The process that a temporary file's name tells, after ".tmp-PID-NUMBER".
std::optional<pid_t> writer_of(std::string_view name) {
  const std::size_t mark = name.rfind(kTemporaryMark);
  if (mark == std::string_view::npos) return std::nullopt;
  const char* const end = name.data() + name.size();
  pid_t process = 0;
  unsigned number = 0;
  const auto [dash, first] = std::from_chars(name.data() + mark + kTemporaryMark.size(), end, process);
  if (first != std::errc{} || dash == end || *dash != '-' || process <= 0) return std::nullopt;
  const auto [rest, second] = std::from_chars(dash + 1, end, number);
  return second == std::errc{} && rest == end ? std::optional(process) : std::nullopt;
}

}  // namespace

bool is_temporary_name(std::string_view name) { return writer_of(name).has_value(); }

std::size_t remove_abandoned_files(const std::filesystem::path& folder) {
  std::size_t removed = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::optional<pid_t> writer = writer_of(at->path().filename().string());
    std::error_code ignored;
    if (!writer || !at->is_regular_file(ignored)) continue;
    if (::kill(*writer, 0) == 0 || errno != ESRCH) continue;
    removed += std::filesystem::remove(at->path(), ignored) ? 1 : 0;
  }
  return removed;
}

AtomicFileWriter::AtomicFileWriter(const std::filesystem::path& path) : path_(path) {
  const std::string shown = printable(path.string());
  if (path.empty()) fail(ErrorCode::invalid_argument, "cannot write a file: its path is empty");
  std::error_code error;
  target_ = std::filesystem::canonical(path, error);
  if (error) target_ = path;
  struct stat status {};
  const bool exists = ::stat(target_.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode))
    fail(ErrorCode::io, "cannot write \"{}\": it is a directory; expected a file path", shown);
  if (exists && !S_ISREG(status.st_mode))
    fail(ErrorCode::io, "cannot write \"{}\": it is not a regular file", shown);

  static std::atomic<unsigned> counter{0};
  for (int attempt = 0; attempt < 100 && descriptor_ < 0; ++attempt) {
    temporary_ = target_;
    temporary_ += fmt::format("{}{}-{}", kTemporaryMark, ::getpid(), counter.fetch_add(1));
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) break;
  }
  if (descriptor_ < 0) {
    const int number = errno;
    fail(number == ENOENT ? ErrorCode::not_found : ErrorCode::io,
         "cannot write \"{}\": creating a file in its folder: {}", shown, std::strerror(number));
  }
  if (exists) {
    // Keep the permissions of the file that is replaced, where we may.
    [[maybe_unused]] const int ignored = ::fchmod(descriptor_, status.st_mode & 0777);
  }
  try {
    buffer_.reserve(kBufferBytes);
  } catch (...) {
    discard();
    throw;
  }
}

AtomicFileWriter::AtomicFileWriter(AtomicFileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      temporary_(std::move(other.temporary_)),
      buffer_(std::move(other.buffer_)),
      size_(other.size_),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

AtomicFileWriter::~AtomicFileWriter() { discard(); }

void AtomicFileWriter::append(std::span<const std::byte> bytes) {
  if (descriptor_ < 0)
    fail(ErrorCode::internal, "append to \"{}\" after commit or failure", printable(path_.string()));
  size_ += bytes.size();
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() >= kBufferBytes) {
    write_all(bytes.data(), bytes.size());
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void AtomicFileWriter::commit() {
  if (descriptor_ < 0)
    fail(ErrorCode::internal, "commit of \"{}\" after commit or failure", printable(path_.string()));
  flush();
  if (::fsync(descriptor_) != 0) fail_write("syncing", errno);
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (closed != 0) fail_write("closing", errno);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_write("renaming", errno);
  temporary_.clear();
  const auto folder = target_.parent_path();
  sync_folder(folder.empty() ? "." : folder);
}

void AtomicFileWriter::write_all(const std::byte* data, std::size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(descriptor_, data, size < kLargestWrite ? size : kLargestWrite);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_write("writing", errno);
    }
    data += written;
    size -= static_cast<std::size_t>(written);
  }
}

void AtomicFileWriter::flush() {
  write_all(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void AtomicFileWriter::discard() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void AtomicFileWriter::fail_write(const char* what, int error) {
  discard();
  fail(ErrorCode::io, "cannot write \"{}\": {} {} bytes: {}", printable(path_.string()), what, size_,
       std::strerror(error));
}

void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  AtomicFileWriter writer(path);
  writer.append(bytes);
  writer.commit();
}

}  // namespace quipu
