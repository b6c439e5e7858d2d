#include "core/thread_governor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace quipu {
namespace {

/// A machine: by the number of threads, seconds of a run, and the share for which its idlest thread did not
/// run.
struct Machine {
  std::function<double(int)> seconds, idle;
};
/// Decode in 10 ms on one thread; nobody else.
const Machine kQuiet{[](int n) { return 0.01 / n; }, [](int) { return 0.01; }};
/// A busy program on one CPU: what is shared out over all of them waits for its time slices.
Machine beside_one_program(int cpus) {
  return {[cpus](int n) { return n < cpus ? 0.01 / n : 0.01 / n + 0.03; },
          [cpus](int n) { return n < cpus ? 0.01 : 0.5; }};
}
/// Busy programs on all CPUs: fewer threads only get less.
const Machine kFull{[](int n) { return 0.04 / n; }, [](int) { return 0.5; }};

struct Outcome {
  int last = 0;
  int most_often = 0;
  double seconds = 0;
};
Outcome drive(ThreadGovernor& governor, const Machine& machine, double seconds, std::uint64_t work = 1) {
  Outcome outcome;
  int counts[65] = {};
  while (outcome.seconds < seconds) {
    const int n = governor.threads();
    ++counts[n];
    outcome.seconds += machine.seconds(n);
    governor.ran(work, machine.seconds(n), machine.idle(n));
  }
  outcome.last = governor.threads();
  outcome.most_often = static_cast<int>(std::max_element(counts, counts + 65) - counts);
  return outcome;
}

TEST(ThreadGovernor, UsesAllThreadsOfAQuietMachine) {
  for (const int threads : {1, 2, 16}) {
    ThreadGovernor governor(threads);
    for (int run = 0; run < 10000; ++run) {
      ASSERT_EQ(governor.threads(), threads);
      governor.ran(1, kQuiet.seconds(threads), kQuiet.idle(threads));
    }
  }
}

TEST(ThreadGovernor, LeavesACpuToANeighbourAndComesBack) {
  for (const int threads : {2, 4, 16}) {
    ThreadGovernor governor(threads);
    drive(governor, kQuiet, 1);
    // Two windows of eight runs.
    for (int run = 0; run < 24; ++run) {
      const Machine machine = beside_one_program(threads);
      governor.ran(1, machine.seconds(governor.threads()), machine.idle(governor.threads()));
    }
    EXPECT_EQ(governor.threads(), threads - 1);
    EXPECT_EQ(drive(governor, beside_one_program(threads), 60).most_often, threads - 1);
    drive(governor, kQuiet, 17);  // the longest it waits before it tries
    EXPECT_EQ(governor.threads(), threads);
    EXPECT_EQ(drive(governor, kQuiet, 10).most_often, threads);
  }
}

TEST(ThreadGovernor, TriesSeldomWhatIsInVain) {
  ThreadGovernor beside(2);
  int with_two = 0, runs = 0;
  const Machine machine = beside_one_program(2);
  for (double seconds = 0; seconds < 120; ++runs) {
    const int n = beside.threads();
    with_two += n == 2 ? 1 : 0;
    seconds += machine.seconds(n);
    beside.ran(1, machine.seconds(n), machine.idle(n));
  }
  EXPECT_LT(with_two, runs / 100);
  ThreadGovernor full(16);
  EXPECT_EQ(drive(full, kFull, 60).most_often, 16);
}

TEST(ThreadGovernor, ComparesOnlyRunsOfEqualWork) {
  ThreadGovernor governor(2);
  const Machine machine = beside_one_program(2);
  for (std::uint64_t work = 0; work < 1000; ++work) {
    EXPECT_EQ(governor.threads(), 2);
    governor.ran(work % 7, machine.seconds(2), machine.idle(2));
  }
  // A trial that other work ends leaves things as they were.
  while (governor.threads() == 2) governor.ran(1, machine.seconds(2), machine.idle(2));
  governor.ran(2, machine.seconds(1), machine.idle(1));
  EXPECT_EQ(governor.threads(), 2);
}

}  // namespace
}  // namespace quipu
