// The thread pool every plan runs on, and how many threads to use.
#pragma once

#include <climits>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace quipu {

struct ThreadAdvice {
  int count = 1;       ///< threads to use: physical cores allowed by affinity and the cgroup CPU quota
  std::string reason;  ///< e.g. "2 physical cores, limited to 1 by the cgroup quota"
};

/// Reads affinity, /sys topology and the cgroup (v1 and v2) quota. Never fails; at least 1.
ThreadAdvice default_threads();

/// A set of threads that run one function together. Thread 0 is the caller. One `run` at a time per pool;
/// several pools may coexist. Between steps workers spin briefly, then sleep.
class ThreadPool {
 public:
  /// `speeds`: how fast the threads are thought to be, relative to each other (core/thread_balance.hpp).
  explicit ThreadPool(int threads, std::vector<double> speeds = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;
  std::span<const double> speeds() const;
  /// Calls `task(thread)` for thread = 0..size()-1, or the first `threads` of them, and returns when all are
  /// done: the largest share of that time, 0 to 1, for which one of them did not run, as it slept until
  /// others were ready or another program had its CPU (0 where the system does not tell). An exception of a
  /// task is rethrown here, after all have returned; tasks that use `barrier()` must not throw.
  double run(const std::function<void(int thread)>& task, int threads = INT_MAX);
  /// Inside `run`: returns when each of its threads has arrived. Writes made before it are visible after
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
/// The same where thread i's share is from bounds[i] to bounds[i + 1] of the whole (ThreadBalance::bounds).
Range share(std::size_t total, int thread, std::span<const double> bounds, std::size_t grain = 1);

}  // namespace quipu
