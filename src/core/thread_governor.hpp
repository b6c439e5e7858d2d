// How many threads of a pool are worth using while other programs run on the same CPUs.
#pragma once

#include <cstdint>

namespace quipu {

/// Threads that meet at barriers all wait for the one that the system keeps from running: beside a busy
/// program two threads can be five times slower than one. The governor sees how long threads did not run,
/// tries one thread less, keeps what is faster, and tries one more now and then. What is computed must not
/// depend on the number of threads. Not thread-safe.
class ThreadGovernor {
 public:
  explicit ThreadGovernor(int threads) : most_(threads), threads_(threads) {}

  /// For the next run: 1 to the number given.
  int threads() const { return threads_; }
  /// After a run with that many. `work`: runs with equal numbers take about equal work, and only those are
  /// compared. `idle`: the largest share of the run's time for which one of its threads did not run.
  void ran(std::uint64_t work, double seconds, double idle);

 private:
  enum class Trial : std::uint8_t { none, fewer, more };
  void begin(Trial trial);
  void end(bool kept);
  void judge(bool whole);
  void restart_window() { runs_ = 0, window_seconds_ = 0, window_idle_ = 0; }

  int most_, threads_;
  std::uint64_t work_ = 0;
  // Of the current number of threads and work.
  int runs_ = 0;
  double window_seconds_ = 0, window_idle_ = 0;
  Trial trial_ = Trial::none;
  double before_ = 0;                              // seconds a run took before the trial
  double since_fewer_ = 1e9, since_more_ = 0;      // seconds of work since the last trial of each kind
  double patience_fewer_ = 0, patience_more_ = 1;  // until the next one; longer after each that was in vain
};

}  // namespace quipu
