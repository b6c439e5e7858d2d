// What errors say, for tests of it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace quipu::test {

/// The message of the Error that `action` must end with, of that code if one is given; "(no error)" where it
/// ends with none.
inline std::string message_of(const std::function<void()>& action, std::optional<ErrorCode> expected = {}) {
  try {
    action();
  } catch (const Error& error) {
    if (expected) {
      EXPECT_EQ(to_string(error.code()), to_string(*expected)) << error.message();
    }
    return error.message();
  }
  return "(no error)";
}

/// Each of the words must stand in the message.
inline void expect_words(const std::string& message, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words)
    EXPECT_NE(message.find(word), std::string::npos) << "no \"" << word << "\" in: " << message;
}

}  // namespace quipu::test
