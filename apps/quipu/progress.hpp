// A progress bar on stderr, on a terminal only.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace quipu::app {

/// "98.4 MB": decimal units, as disks and downloads are sold.
std::string size_text(std::uint64_t bytes);

class ProgressBar {
 public:
  /// `total` 0: unknown.
  ProgressBar(std::string label, std::uint64_t total);
  /// Removes the bar's line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void set_total(std::uint64_t total) { total_ = total; }
  /// `done` bytes are there; the rate counts from the first call.
  void update(std::uint64_t done);

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  std::uint64_t total_, first_ = 0;
  Clock::time_point start_, drawn_;
  bool visible_, begun_ = false, on_screen_ = false;
};

}  // namespace quipu::app
