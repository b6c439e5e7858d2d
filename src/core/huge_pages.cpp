#include "core/huge_pages.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>

namespace quipu {
namespace {

constexpr std::size_t kPiece = std::size_t{2} << 20;  // a huge page, on x86-64 and on Arm with pages of 4 KiB

std::byte* up_to_piece(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return reinterpret_cast<std::byte*>((at + kPiece - 1) / kPiece * kPiece);
}

bool system_has_huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  return std::getline(file, line) && line.find("[never]") == std::string::npos;
}

}  // namespace

HugePages::HugePages(std::span<const std::byte> mapping, bool lock, std::chrono::milliseconds delay) {
  std::byte* first = up_to_piece(mapping.data());
  const std::byte* end = mapping.data() + mapping.size();
  if (first + kPiece > end || !system_has_huge_pages()) return;
  const std::size_t pieces = static_cast<std::size_t>(end - first) / kPiece;
  try {
    thread_ = std::thread([this, first, pieces, lock, delay] {
      {
        std::unique_lock hold(mutex_);
        if (stopped_.wait_for(hold, delay, [this] { return stop_.load(); })) return;
      }
      move(first, pieces, lock);
    });
  } catch (const std::system_error&) {  // no thread, no huge pages
  }
}

HugePages::~HugePages() {
  {
    const std::scoped_lock hold(mutex_);
    stop_ = true;
  }
  stopped_.notify_one();
  finish();
}

std::size_t HugePages::finish() {
  if (thread_.joinable()) thread_.join();
  return moved_;
}

void HugePages::move(std::byte* first, std::size_t pieces, bool lock) {
  // Of this thread alone, and a wish: the first prompt is computed meanwhile.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19);
  // One region for all, of which the pieces are taken in order: neighbours join to one mapping again.
  const std::size_t size = (pieces + 1) * kPiece;
  void* region =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) return;
  std::byte* from = up_to_piece(region);
  std::size_t done = 0;
  if (::madvise(from, pieces * kPiece, MADV_HUGEPAGE) == 0) {
    for (; done < pieces && !stop_; ++done) {
      std::byte* piece = from + done * kPiece;
      std::byte* place = first + done * kPiece;
      std::memcpy(piece, place, kPiece);
      if (::mprotect(piece, kPiece, PROT_READ) != 0) break;
      // Whoever reads there meanwhile waits in a page fault.
      if (::mremap(piece, kPiece, kPiece, MREMAP_MAYMOVE | MREMAP_FIXED, place) == MAP_FAILED) break;
      if (lock) ::mlock(place, kPiece);
    }
  }
  moved_ = done * kPiece;
  // What the pieces left behind is a hole in the region.
  ::munmap(region, static_cast<std::size_t>(from - static_cast<std::byte*>(region)));
  ::munmap(from + moved_, static_cast<std::size_t>(static_cast<std::byte*>(region) + size - (from + moved_)));
}

}  // namespace quipu
