// The time at which the goldens of chat templates were made.
#pragma once

#include <ctime>

namespace quipu::test {

/// 2026-01-15 12:00:00, a Thursday.
inline std::tm golden_clock() {
  std::tm now{};
  now.tm_year = 126;
  now.tm_mday = 15;
  now.tm_hour = 12;
  now.tm_wday = 4;
  now.tm_yday = 14;
  return now;
}

}  // namespace quipu::test
