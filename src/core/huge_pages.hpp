// Bytes of a mapped file in huge pages.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <thread>

namespace quipu {

/// Copies a mapped file, piece by piece of 2 MiB, into anonymous huge pages and puts these where the mapping
/// was: same addresses, same bytes, while other threads read. Weights are read from end to end for every
/// token, and with pages of 4 KiB each walk through them misses the TLB all the way, which takes a third of
/// decode's speed on a virtual machine. The file's own pages go back to the page cache, from where the system
/// takes them when it needs memory; these it can only swap. Where the system has no huge pages nothing
/// happens; what could not be moved stays mapped.
class HugePages {
 public:
  /// Begins after `delay`, on a thread of its own. `mapping` must stay mapped while this lives. `lock`: pin
  /// the pages.
  HugePages(std::span<const std::byte> mapping, bool lock, std::chrono::milliseconds delay = {});
  /// Stops; what has been moved stays so.
  ~HugePages();
  HugePages(const HugePages&) = delete;
  HugePages& operator=(const HugePages&) = delete;

  /// Waits for the end, and returns how many bytes have been moved.
  std::size_t finish();

 private:
  void move(std::byte* first, std::size_t pieces, bool lock);
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable stopped_;  // stop_ was set
  std::size_t moved_ = 0;
  std::thread thread_;
};

}  // namespace quipu
