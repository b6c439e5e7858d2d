#include "backends/host_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define QUIPU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QUIPU_ASAN 1
#endif
#endif
#ifdef QUIPU_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace quipu::backends {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
// The TLB reaches over smaller buffers without, and of what those hold often little is used.
constexpr std::size_t kLeastHuge = 8 * kHugePage;

// The mapping ends at a page, the buffer before it: let AddressSanitizer guard what lies between.
void guard([[maybe_unused]] std::byte* begin, [[maybe_unused]] std::byte* end) {
#ifdef QUIPU_ASAN
  ASAN_POISON_MEMORY_REGION(begin, end - begin);
#endif
}
void unguard([[maybe_unused]] std::byte* begin, [[maybe_unused]] std::byte* end) {
#ifdef QUIPU_ASAN
  ASAN_UNPOISON_MEMORY_REGION(begin, end - begin);
#endif
}

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

}  // namespace

class HostBuffer final : public Buffer {
 public:
  /// Takes over the bytes already charged to `device`.
  HostBuffer(std::shared_ptr<HostDevice> device, std::byte* data, std::size_t size, std::size_t mapped)
      : device_(std::move(device)), data_(data), size_(size), mapped_(mapped) {
    guard(data_ + size_, data_ + mapped_);
  }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer() override {
    unguard(data_ + size_, data_ + mapped_);
    munmap(data_, mapped_);
    device_->give_back(size_);
  }
  std::byte* data() override { return data_; }
  std::size_t size() const override { return size_; }

 private:
  std::shared_ptr<HostDevice> device_;
  std::byte* data_;
  std::size_t size_, mapped_;
};

HostDevice::HostDevice(std::string name, std::string description, std::uint64_t memory_budget)
    : name_(std::move(name)), description_(std::move(description)), budget_(memory_budget) {}

std::shared_ptr<HostDevice> HostDevice::create(std::string name, std::string description,
                                               std::uint64_t memory_budget) {
  return std::shared_ptr<HostDevice>(new HostDevice(std::move(name), std::move(description), memory_budget));
}

DeviceInfo HostDevice::info() const { return {name_, description_, budget_, used_.load()}; }

void HostDevice::give_back(std::size_t bytes) noexcept { used_.fetch_sub(bytes); }

std::unique_ptr<Buffer> HostDevice::allocate(std::size_t bytes) {
  std::uint64_t used = used_.load();
  do {
    if (bytes > budget_ - used)
      fail(ErrorCode::out_of_memory, "device {}: {} bytes asked, but only {} of its {} bytes are left", name_,
           bytes, budget_ - used, budget_);
  } while (!used_.compare_exchange_weak(used, used + bytes));

  const auto refuse = [&](const char* reason) {
    give_back(bytes);
    fail(ErrorCode::out_of_memory, "device {}: the system refused {} bytes ({})", name_, bytes, reason);
  };
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const bool huge = bytes >= kLeastHuge;
  if (bytes > SIZE_MAX - 2 * kHugePage) refuse("more than the address space");
  const std::size_t wanted = round_up(std::max<std::size_t>(bytes, 1), page);
  const std::size_t mapped = huge ? wanted + kHugePage : wanted;
  void* memory =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) refuse(std::strerror(errno));
  auto* begin = static_cast<std::byte*>(memory);
  if (huge) {  // keep the part that starts at a huge page
    const std::size_t skip = (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
    if (skip > 0) munmap(begin, skip);
    begin += skip;
    if (skip < kHugePage) munmap(begin + wanted, kHugePage - skip);
    // Small steps and short contexts keep to the beginning: it costs them what they touch.
    madvise(begin + kHugePage, wanted - kHugePage, MADV_HUGEPAGE);
  }
  return std::make_unique<HostBuffer>(shared_from_this(), begin, bytes, wanted);
}

}  // namespace quipu::backends
