// The thread pool every plan runs on, and how many threads to use.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace quipu {

struct ThreadAdvice {
  int count = 1;       ///< threads to use: physical cores allowed by affinity and the cgroup CPU quota
  std::string reason;  ///< e.g. "2 physical cores, limited to 1 by the cgroup quota"
};

/// Reads affinity, /sys topology and the cgroup (v1 and v2) quota. Never fails; at least 1.
ThreadAdvice default_threads();

/// A fixed set of threads that run one function together. Thread 0 is the caller. One `run` at a time per
/// pool; several pools may coexist. Between steps workers spin briefly, then sleep.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;
  /// Calls `task(thread)` for thread = 0..size()-1 and returns when all are done. An exception of a task is
  /// rethrown here, after all have returned; tasks that use `barrier()` must not throw.
  void run(const std::function<void(int thread)>& task);
  /// Inside `run`: returns when every thread of the pool has arrived. Writes made before it are visible after
  /// it.
  void barrier();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The half-open share [begin, end) of `total` items that falls to `thread` of `threads`, in multiples of
/// `grain`.
struct Range {
  std::size_t begin, end;
};
Range share(std::size_t total, int thread, int threads, std::size_t grain = 1);

}  // namespace quipu
