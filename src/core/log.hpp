// Logging to stderr; stdout belongs to results. (spdlog stays behind this header.)
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace quipu::log {

enum class Level { debug, info, warning, error, off };

/// Messages below `level` are dropped. The default is `warning`; `QUIPU_LOG` (debug|info|warning|error|off)
/// overrides it at start.
void set_level(Level level);
Level level();
void write(Level level, std::string_view message);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (level() <= Level::debug) write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (level() <= Level::info) write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  if (level() <= Level::warning) write(Level::warning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (level() <= Level::error) write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace quipu::log
