#include "core/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "core/error.hpp"

namespace quipu::log {
namespace {

std::optional<Level> parse_level(std::string_view name) {
  if (name == "debug") return Level::debug;
  if (name == "info") return Level::info;
  if (name == "warning") return Level::warning;
  if (name == "error") return Level::error;
  if (name == "off") return Level::off;
  return std::nullopt;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
    case Level::off:
      break;
  }
  return spdlog::level::off;
}

// Never destroyed, so that destructors of other static objects may still log.
spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    const bool no_color = std::getenv("NO_COLOR") != nullptr;
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(
        no_color ? spdlog::color_mode::never : spdlog::color_mode::automatic);
    auto* made = new spdlog::logger("quipu", std::move(sink));
    made->set_pattern("%^%l:%$ %v");
    made->set_level(spdlog::level::debug);
    return made;
  }();
  return *instance;
}

Level initial_level() {
  const char* name = std::getenv("QUIPU_LOG");
  if (name == nullptr || *name == '\0') return Level::warning;
  if (const auto level = parse_level(name)) return *level;
  logger().warn("QUIPU_LOG is \"{}\"; expected debug, info, warning, error or off", printable(name));
  return Level::warning;
}

std::atomic<Level>& current_level() {
  static std::atomic<Level> level{initial_level()};
  return level;
}

}  // namespace

void set_level(Level level) { current_level().store(level, std::memory_order_relaxed); }
Level level() { return current_level().load(std::memory_order_relaxed); }

void write(Level level, std::string_view message) {
  if (level == Level::off || level < log::level()) return;
  logger().log(to_spdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace quipu::log
