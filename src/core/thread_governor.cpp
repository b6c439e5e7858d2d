#include "core/thread_governor.hpp"

#include <algorithm>

namespace quipu {
namespace {

constexpr int kWindow = 8;  // runs that are compared with as many others
constexpr int kFewest = 3;  // of a trial that is plainly a bad idea
constexpr double kPlainlySlower = 1.5;
constexpr double kWorthLess = 0.9;   // of the time before: then fewer threads are kept
constexpr double kWorthMore = 1.03;  // at most: then more threads are, as all would be without neighbours
constexpr double kShortestPatience = 1, kLongestPatience = 16;  // seconds

/// With one thread of n less the rest takes at best n / (n - 1) of the time: it pays from 1 / n on.
double worth_a_trial(int threads) { return std::max(0.1, 0.6 / threads); }

double longer(double patience) {
  return std::min(std::max(2 * patience, kShortestPatience), kLongestPatience);
}

}  // namespace

void ThreadGovernor::begin(Trial trial) {
  before_ = window_seconds_ / runs_;
  trial_ = trial;
  threads_ += trial == Trial::more ? 1 : -1;
  restart_window();
}

void ThreadGovernor::end(bool kept) {
  if (!kept && trial_ != Trial::none) threads_ -= trial_ == Trial::more ? 1 : -1;
  trial_ = Trial::none;
  restart_window();
}

void ThreadGovernor::judge(bool whole) {
  const double ratio = window_seconds_ / runs_ / before_;
  const bool fewer = trial_ == Trial::fewer;
  const bool kept = whole && ratio < (fewer ? kWorthLess : kWorthMore);
  double& patience = fewer ? patience_fewer_ : patience_more_;
  (fewer ? since_fewer_ : since_more_) = 0;
  if (kept) {
    // The next one in the same direction at once; back, not soon.
    patience = 0;
    (fewer ? patience_more_ : patience_fewer_) = kShortestPatience;
    if (fewer) since_more_ = 0;
  } else {
    patience = longer(patience);
  }
  end(kept);
}

void ThreadGovernor::ran(std::uint64_t work, double seconds, double idle) {
  if (most_ == 1) return;
  since_fewer_ += seconds;
  since_more_ += seconds;
  if (work != work_) {
    end(false);  // there is nothing to compare a trial with
    work_ = work;
  }
  ++runs_;
  window_seconds_ += seconds;
  window_idle_ += idle;
  if (trial_ != Trial::none) {
    const bool bad = runs_ >= kFewest && window_seconds_ > kPlainlySlower * before_ * runs_;
    if (bad || runs_ == kWindow) judge(!bad);
    return;
  }
  if (runs_ < kWindow) return;
  if (threads_ > 1 && since_fewer_ >= patience_fewer_ && window_idle_ / runs_ > worth_a_trial(threads_))
    begin(Trial::fewer);
  else if (threads_ < most_ && since_more_ >= patience_more_)
    begin(Trial::more);
  else
    restart_window();
}

}  // namespace quipu
