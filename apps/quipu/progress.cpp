#include "progress.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "output.hpp"

namespace quipu::app {

std::string size_text(std::uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  static constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes) / 1000;
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) value /= 1000, ++unit;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

ProgressBar::ProgressBar(std::string label, std::uint64_t total)
    : label_(std::move(label)), total_(total), visible_(stderr_is_terminal()) {}

ProgressBar::~ProgressBar() {
  if (on_screen_) write_stderr("\r\033[K");
}

void ProgressBar::update(std::uint64_t done) {
  if (!visible_) return;
  const auto now = Clock::now();
  if (!begun_) {
    begun_ = true;
    first_ = done;
    start_ = now;
  } else if (now - drawn_ < std::chrono::milliseconds(100) && done != total_) {
    return;
  }
  drawn_ = now;
  on_screen_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = seconds > 0.2 ? static_cast<double>(done - first_) / seconds : 0;
  std::string line = fmt::format("\r\033[K{} ", label_);
  if (total_ > 0) {
    constexpr std::size_t kWidth = 24;
    const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
    const auto filled = static_cast<std::size_t>(part * kWidth);
    line += fmt::format("{:3.0f}% [{}{}] {} of {}", part * 100, std::string(filled, '='),
                        std::string(kWidth - filled, ' '), size_text(done), size_text(total_));
  } else {
    line += size_text(done);
  }
  if (rate > 0) line += fmt::format(", {}/s", size_text(static_cast<std::uint64_t>(rate)));
  if (rate > 0 && total_ > done)
    line += fmt::format(", {:.0f} s left", static_cast<double>(total_ - done) / rate);
  write_stderr(line);
}

}  // namespace quipu::app
