#include "core/threads.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/error.hpp"

namespace quipu {
namespace {

class PoolOf : public testing::TestWithParam<int> {};

TEST_P(PoolOf, RunsTheTaskOnceOnEveryThread) {
  const int threads = GetParam();
  ThreadPool pool(threads);
  EXPECT_EQ(pool.size(), threads);
  std::vector<int> calls(
      static_cast<std::size_t>(threads));  // plain ints: run() itself must order the accesses
  const auto caller = std::this_thread::get_id();
  for (int round = 1; round <= 300; ++round) {
    pool.run([&](int thread) {
      ++calls[static_cast<std::size_t>(thread)];
      if (thread == 0) {
        EXPECT_EQ(std::this_thread::get_id(), caller);
      }
    });
    for (const int count : calls) ASSERT_EQ(count, round);
  }
}

TEST_P(PoolOf, BarrierMakesEveryEarlierWriteVisible) {
  const int threads = GetParam();
  ThreadPool pool(threads);
  std::vector<int> values(static_cast<std::size_t>(threads));
  std::atomic<int> mismatches{0};
  pool.run([&](int thread) {
    for (int step = 0; step < 300; ++step) {
      values[static_cast<std::size_t>(thread)] = step * 1000 + thread;
      pool.barrier();
      for (int other = 0; other < threads; ++other)
        if (values[static_cast<std::size_t>(other)] != step * 1000 + other) ++mismatches;
      pool.barrier();
    }
  });
  EXPECT_EQ(mismatches, 0);
}

TEST_P(PoolOf, RethrowsTheErrorOfTheLowestThreadAfterAllReturned) {
  const int threads = GetParam();
  ThreadPool pool(threads);
  std::atomic<int> returned{0};
  try {
    pool.run([&](int thread) {
      ++returned;
      throw std::runtime_error("thread " + std::to_string(thread));
    });
    FAIL() << "no exception";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "thread 0");
  }
  EXPECT_EQ(returned, threads);
  EXPECT_THROW(pool.run([&](int thread) {
    if (thread == threads - 1) fail(ErrorCode::cancelled, "stop");
  }),
               Error);
  std::atomic<int> calls{0};
  pool.run([&](int) { ++calls; });  // and still works, without the old error
  EXPECT_EQ(calls, threads);
}

TEST_P(PoolOf, WakesThreadsThatWentToSleep) {
  ThreadPool pool(GetParam());
  std::atomic<int> calls{0};
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    pool.run([&](int thread) {
      // Long enough that waiting threads sleep in the barrier and in run, too.
      if (thread == round % pool.size()) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      pool.barrier();
      ++calls;
    });
  }
  EXPECT_EQ(calls, 5 * GetParam());
}

TEST_P(PoolOf, RefusesToRunInsideItself) {
  ThreadPool pool(GetParam());
  try {
    pool.run([&](int) { pool.run([](int) {}); });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::internal);
  }
  pool.run([](int) {});
}

TEST_P(PoolOf, RunsOnTheFirstThreadsOnly) {
  ThreadPool pool(GetParam());
  std::vector<int> calls(static_cast<std::size_t>(GetParam())), expected(calls.size());
  for (int round = 0; round < 200; ++round) {
    const int threads = 1 + round % (GetParam() + 1);  // one more than there are, too: all
    const double idle = pool.run(
        [&](int thread) {
          pool.barrier();
          ++calls[static_cast<std::size_t>(thread)];
          pool.barrier();
        },
        threads);
    for (int i = 0; i < std::min(threads, GetParam()); ++i) ++expected[static_cast<std::size_t>(i)];
    ASSERT_EQ(calls, expected);
    ASSERT_GE(idle, 0);
    ASSERT_LE(idle, 1);
  }
}

TEST(ThreadPool, TellsHowLongAThreadDidNotRun) {
  ThreadPool pool(2);
  // One sleeps through nearly all of it, the other waits for that in the barrier.
  const double idle = pool.run([&](int thread) {
    if (thread == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pool.barrier();
  });
  EXPECT_GT(idle, 0.8);
}

INSTANTIATE_TEST_SUITE_P(Threads, PoolOf, testing::Values(1, 2, 3, 16));

TEST(ThreadPool, SeveralPoolsWorkAtTheSameTime) {
  std::atomic<int> calls{0};
  const auto work = [&calls] {
    ThreadPool pool(3);
    for (int i = 0; i < 50; ++i) pool.run([&](int) { ++calls; });
  };
  std::thread first(work), second(work);
  first.join();
  second.join();
  EXPECT_EQ(calls, 2 * 3 * 50);
}

TEST(ThreadPool, MayGoUnused) {
  for (int i = 0; i < 20; ++i) ThreadPool pool(4);
}

TEST(ThreadPool, RefusesFewerThanOneThread) {
  for (const int threads : {0, -1, std::numeric_limits<int>::min()}) {
    try {
      ThreadPool pool(threads);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(error.message().find(std::to_string(threads)), std::string::npos);
    }
  }
}

TEST(Share, PartsAreAdjacentOrderedAndWithinOneGrainOfEachOther) {
  for (const std::size_t total : {0UL, 1UL, 7UL, 16UL, 100UL, 1000UL})
    for (const int threads : {1, 2, 3, 7, 64})
      for (const std::size_t grain : {1UL, 4UL, 16UL, 1000UL}) {
        std::size_t end = 0, least = total, largest = 0;
        for (int thread = 0; thread < threads; ++thread) {
          const Range range = share(total, thread, threads, grain);
          ASSERT_EQ(range.begin, end);
          ASSERT_LE(range.begin, range.end);
          if (range.end != total) {
            ASSERT_EQ(range.end % grain, 0U);
          }
          const std::size_t units = (range.end - range.begin + grain - 1) / grain;
          least = std::min(least, units), largest = std::max(largest, units);
          end = range.end;
        }
        ASSERT_EQ(end, total);
        ASSERT_LE(largest - least, 1U) << total << ' ' << threads << ' ' << grain;
      }
}

TEST(Share, ByHand) {
  const Range first = share(10, 0, 3, 1), last = share(10, 2, 3, 1);
  EXPECT_EQ(first.begin, 0U);
  EXPECT_EQ(first.end, 4U);
  EXPECT_EQ(last.begin, 7U);
  EXPECT_EQ(last.end, 10U);
  const Range grained = share(100, 1, 2, 32);  // 4 units, the last one of 4 items
  EXPECT_EQ(grained.begin, 64U);
  EXPECT_EQ(grained.end, 100U);
}

TEST(Share, SurvivesTheLargestTotals) {
  const std::size_t largest = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(share(largest, 1, 2, 1).end, largest);
  EXPECT_EQ(share(largest, 1, 2, 4).end, largest);
}

}  // namespace
}  // namespace quipu
