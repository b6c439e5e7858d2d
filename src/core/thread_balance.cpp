#include "core/thread_balance.hpp"

#include <algorithm>
#include <cmath>

namespace quipu {
namespace {

/// Of work a thread must have been seen at for its speed to be believed by two thirds: what a neighbour takes
/// away for a while is no speed.
constexpr double kMemorySeconds = 0.3;
/// Speeds that are this near to each other are one: shares that follow noise cost more than they save.
constexpr double kEqual = 0.1;
/// A run changes a speed by no more than this factor: a thread may have been kept from running.
constexpr double kMostChange = 1.5;
/// Of the fastest one's speed: every thread gets some work, or nobody would see it recover.
constexpr double kLeast = 0.05;

}  // namespace

ThreadBalance::ThreadBalance(int threads, std::span<const double> speeds)
    : speeds_(static_cast<std::size_t>(threads), 1.0) {
  for (std::size_t i = 0; i < std::min(speeds.size(), speeds_.size()); ++i) speeds_[i] = speeds[i];
  scale();
  bounds_.reserve(speeds_.size() + 1);
}

std::span<const double> ThreadBalance::bounds(int threads) {
  const std::size_t n = static_cast<std::size_t>(threads);
  const auto [least, most] = std::minmax_element(speeds_.begin(), speeds_.begin() + threads);
  const bool equal = *most - *least < kEqual * *most;
  bounds_.assign(n + 1, 0);
  for (std::size_t i = 0; i < n; ++i) bounds_[i + 1] = bounds_[i] + (equal ? 1 : speeds_[i]);
  const double all = bounds_[n];
  for (double& bound : bounds_) bound /= all;
  bounds_[n] = 1;
  return bounds_;
}

void ThreadBalance::ran(std::span<const Spent> threads) {
  const auto seen = [](const Spent& t) { return t.work > 0 && t.seconds > 0; };
  double work = 0, seconds = 0, speeds = 0, count = 0;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    if (!seen(threads[i])) continue;
    work += threads[i].work;
    seconds += threads[i].seconds;
    speeds += speeds_[i];
    ++count;
  }
  if (count < 2) return;
  const double trust = 1 - std::exp(-seconds / count / kMemorySeconds);
  // In work a second: the mean speed over the time is the mean of those held before.
  const double unit = work / seconds / (speeds / count);
  for (std::size_t i = 0; i < threads.size(); ++i) {
    if (!seen(threads[i])) continue;
    const double measured = std::clamp(threads[i].work / threads[i].seconds / unit, speeds_[i] / kMostChange,
                                       speeds_[i] * kMostChange);
    speeds_[i] += trust * (measured - speeds_[i]);
  }
  scale();
}

void ThreadBalance::scale() {
  const double fastest = *std::max_element(speeds_.begin(), speeds_.end());
  for (double& speed : speeds_) speed = std::max(speed / fastest, kLeast);
}

}  // namespace quipu
