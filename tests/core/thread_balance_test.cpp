#include "core/thread_balance.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "core/threads.hpp"

namespace quipu {
namespace {

/// Runs of `total` work shared out by `balance` among threads of these speeds, in work a second.
void drive(ThreadBalance& balance, const std::vector<double>& speeds, double total, int runs) {
  for (int run = 0; run < runs; ++run) {
    const std::span<const double> bounds = balance.bounds(static_cast<int>(speeds.size()));
    std::vector<ThreadBalance::Spent> spent;
    for (std::size_t i = 0; i < speeds.size(); ++i) {
      const double work = (bounds[i + 1] - bounds[i]) * total;
      spent.push_back({work, work / speeds[i]});
    }
    balance.ran(spent);
  }
}
std::vector<double> shares(ThreadBalance& balance, int threads) {
  const std::span<const double> bounds = balance.bounds(threads);
  std::vector<double> shares;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) shares.push_back(bounds[i + 1] - bounds[i]);
  return shares;
}

TEST(ThreadBalance, SharesAreEqualUntilSpeedsAreSeen) {
  ThreadBalance balance(4);
  for (const double share : shares(balance, 4)) EXPECT_NEAR(share, 0.25, 1e-12);
  for (const double share : shares(balance, 3)) EXPECT_NEAR(share, 1.0 / 3, 1e-12);
}

TEST(ThreadBalance, SharesComeToBeInProportionToSpeeds) {
  ThreadBalance balance(4);
  drive(balance, {2, 2, 1, 1}, 0.1, 200);  // two cores of each kind, runs of some 17 ms
  const std::vector<double> found = shares(balance, 4);
  EXPECT_NEAR(found[0], 1.0 / 3, 0.005);
  EXPECT_NEAR(found[1], 1.0 / 3, 0.005);
  EXPECT_NEAR(found[2], 1.0 / 6, 0.005);
  EXPECT_NEAR(found[3], 1.0 / 6, 0.005);
}

TEST(ThreadBalance, FewLongRunsTellAsMuchAsManyShortOnes) {
  ThreadBalance balance(2);
  drive(balance, {2, 1}, 3, 4);  // prefill: a second each
  EXPECT_NEAR(shares(balance, 2)[0], 2.0 / 3, 0.02);
}

TEST(ThreadBalance, NearlyEqualSpeedsGetEqualShares) {
  ThreadBalance balance(2);
  drive(balance, {1, 0.95}, 0.1, 200);
  EXPECT_DOUBLE_EQ(shares(balance, 2)[0], 0.5);
}

TEST(ThreadBalance, ARunInWhichAThreadWasHeldUpChangesLittle) {
  ThreadBalance balance(2);
  balance.ran(std::vector<ThreadBalance::Spent>{{1, 0.005}, {1, 0.010}});
  EXPECT_NEAR(shares(balance, 2)[0], 0.5, 0.01);
}

TEST(ThreadBalance, AThreadThatRecoversGetsItsShareBack) {
  ThreadBalance balance(2);
  drive(balance, {1, 0.01}, 0.1, 50);
  const double least = shares(balance, 2)[1];
  EXPECT_LT(least, 0.1);
  EXPECT_GT(least, 0.02) << "a thread without work shows no speed";
  drive(balance, {1, 1}, 0.1, 400);
  EXPECT_NEAR(shares(balance, 2)[1], 0.5, 0.03);
}

TEST(ThreadBalance, WhatWasNotSeenChangesNothing) {
  ThreadBalance balance(3, std::vector<double>{3, 1});
  const std::vector<double> before = shares(balance, 3);
  EXPECT_NEAR(before[0], 0.6, 1e-12);
  balance.ran({});
  balance.ran(std::vector<ThreadBalance::Spent>{{1, 0.1}, {0, 0}, {0, 0}});
  EXPECT_EQ(shares(balance, 3), before);
}

TEST(ThreadBalance, UnequalSharesCoverEverythingOnce) {
  for (const std::vector<double>& speeds :
       {std::vector<double>{1}, {1, 1}, {0.1, 10}, {3, 1, 1}, {1, 2, 0.3, 5}}) {
    const int threads = static_cast<int>(speeds.size());
    ThreadBalance balance(threads, speeds);
    const std::span<const double> bounds = balance.bounds(threads);
    for (const std::size_t total : {0, 1, 2, 15, 16, 17, 576, 49152})
      for (const std::size_t grain : {1, 16, 64}) {
        std::size_t at = 0;
        for (int thread = 0; thread < threads; ++thread) {
          const Range r = share(total, thread, bounds, grain);
          EXPECT_EQ(r.begin, at);
          EXPECT_LE(r.begin, r.end);
          EXPECT_TRUE(r.end == total || r.end % grain == 0);
          at = r.end;
        }
        EXPECT_EQ(at, total);
      }
  }
}

}  // namespace
}  // namespace quipu
