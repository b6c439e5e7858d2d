#include "core/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/huge_pages.hpp"

namespace quipu {
namespace {

constexpr std::size_t kLargestRead = 1 << 30;  // the kernel gives at most 2 GiB a call

// Closes the descriptor on every way out of the constructor.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const { return value_; }

 private:
  int value_;
};

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

void read_all(int descriptor, std::byte* out, std::size_t size, const std::string& shown) {
  std::size_t done = 0;
  while (done < size) {
    const std::size_t wanted = size - done < kLargestRead ? size - done : kLargestRead;
    const ssize_t got = ::pread(descriptor, out + done, wanted, static_cast<off_t>(done));
    if (got < 0) {
      if (errno == EINTR) continue;
      fail(ErrorCode::io, "cannot read \"{}\" at offset {}: {}", shown, done, std::strerror(errno));
    }
    if (got == 0)
      fail(ErrorCode::io, "cannot read \"{}\": it ended at offset {}, expected {} bytes", shown, done, size);
    done += static_cast<std::size_t>(got);
  }
}

}  // namespace

MappedFile::MappedFile() = default;

MappedFile::MappedFile(const std::filesystem::path& path, Mode mode) : path_(path) {
  const std::string shown = printable(path.string());
  // Non-blocking, because opening a pipe without a writer would wait for ever.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    const int number = errno;
    if (number == ENOENT || number == ENOTDIR)
      fail(ErrorCode::not_found, "cannot open \"{}\": no such file", shown);
    fail(ErrorCode::io, "cannot open \"{}\": {}", shown, std::strerror(number));
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0)
    fail(ErrorCode::io, "cannot open \"{}\": {}", shown, std::strerror(errno));
  if (!S_ISREG(status.st_mode))
    fail(ErrorCode::io, "cannot open \"{}\": it is {}; expected a file", shown, kind_of(status.st_mode));
  if (static_cast<std::uint64_t>(status.st_size) > std::numeric_limits<std::size_t>::max())
    fail(ErrorCode::io, "cannot open \"{}\": {} bytes do not fit the address space", shown, status.st_size);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;

  // Both modes hold whole pages, so that tensors are aligned alike.
  const bool map = mode == Mode::map;
  void* memory = map ? ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0)
                     : ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    const int number = errno;
    fail(number == ENOMEM ? ErrorCode::out_of_memory : ErrorCode::io, "cannot {} \"{}\" ({} bytes): {}",
         map ? "map" : "read", shown, size, std::strerror(number));
  }
  if (!map) ::madvise(memory, size, MADV_HUGEPAGE);
  data_ = static_cast<const std::byte*>(memory);
  size_ = size;
  mapped_ = map;
  if (map) return;
  try {
    read_all(file.get(), static_cast<std::byte*>(memory), size, shown);
  } catch (...) {
    release();
    throw;
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(std::exchange(other.mapped_, false)),
      locked_(std::exchange(other.locked_, false)),
      huge_pages_(std::move(other.huge_pages_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  release();
  path_ = std::move(other.path_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  mapped_ = std::exchange(other.mapped_, false);
  locked_ = std::exchange(other.locked_, false);
  huge_pages_ = std::move(other.huge_pages_);
  return *this;
}

MappedFile::~MappedFile() { release(); }

void MappedFile::prefetch() const {
  if (!mapped_) return;
  ::madvise(const_cast<std::byte*>(data_), size_, MADV_WILLNEED);
}

bool MappedFile::lock() {
  locked_ = size_ == 0 || ::mlock(data_, size_) == 0;
  return locked_;
}

void MappedFile::move_to_huge_pages(std::chrono::milliseconds delay) {
  if (mapped_ && huge_pages_ == nullptr) huge_pages_ = std::make_unique<HugePages>(bytes(), locked_, delay);
}

void MappedFile::release() noexcept {
  huge_pages_.reset();
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  data_ = nullptr;
  size_ = 0;
  mapped_ = locked_ = false;
}

}  // namespace quipu
