// How much of the work that is shared out each thread of a pool gets.
#pragma once

#include <span>
#include <vector>

namespace quipu {

/// Threads that meet at barriers wait for the slowest. Equal shares are right for equal threads only:
/// efficiency cores have half the speed of performance cores, and a core whose other half is busy with
/// something else is slower too. The balance sees how long each thread took for its share and gives it as
/// much as it can do in the time of the others. What is computed must not depend on the shares. Not
/// thread-safe.
class ThreadBalance {
 public:
  /// `speeds`: a first guess, above 0, relative to each other; those left out are 1.
  explicit ThreadBalance(int threads, std::span<const double> speeds = {});

  /// Where the shares of the first `threads` begin and end, from 0 to 1: [threads + 1].
  std::span<const double> bounds(int threads);

  struct Spent {
    double work = 0;  ///< done, in any unit
    double seconds = 0;
  };
  /// After a run of some threads. The longer it was, the more it counts.
  void ran(std::span<const Spent> threads);

 private:
  void scale();
  std::vector<double> speeds_;  ///< of the fastest one's
  std::vector<double> bounds_;
};

}  // namespace quipu
