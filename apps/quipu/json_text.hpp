// Strings that are safe to put into JSON.
#pragma once

#include <string>
#include <string_view>

namespace quipu::app {

/// `text` with every invalid UTF-8 sequence replaced by U+FFFD: JSON has no other way to hold such bytes.
std::string valid_utf8(std::string_view text);

}  // namespace quipu::app
