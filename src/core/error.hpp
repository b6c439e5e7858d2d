// How to throw the one exception type of quipu. Text that comes from files passes through `printable()`
// first.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

#include "quipu/error.hpp"

namespace quipu {

/// Formats a message (fmt syntax) and throws `Error`.
template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// `text` with control characters, invalid UTF-8 and quotes escaped, at most `max_bytes` long (then `…`):
/// safe to print to a terminal, whatever a file holds.
std::string printable(std::string_view text, std::size_t max_bytes = 200);

}  // namespace quipu
