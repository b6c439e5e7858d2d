// The chat template styles that quipu renders without an interpreter.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "text/chat_template.hpp"

namespace quipu::text {

struct ChatStyleContext {
  std::string bos, eos;                ///< texts of the special tokens; empty when the model has none
  std::function<std::string()> today;  ///< the date as "15 Jan 2026"
};

/// Recognises the template's style. One that is not recognised gives an object whose render() throws `Error`
/// (unsupported).
std::unique_ptr<ChatTemplate> recognize_chat_template(std::string_view source, ChatStyleContext context);

}  // namespace quipu::text
