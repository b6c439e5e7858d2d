// Conversations to prompt text.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf/gguf.hpp"

namespace quipu::text {

struct Message {
  std::string role;  ///< "system", "user", "assistant"
  std::string content;
};

/// Renders a conversation the way a model was trained to see it. Until the Jinja engine lands, the templates
/// of the ChatML, Llama 2, Llama 3, Mistral, Gemma, Phi-3 and Zephyr styles are recognised by their markers;
/// any other template is an error that says so, never another style in silence.
class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  /// From tokenizer.chat_template; a model without one gets none (null).
  static std::unique_ptr<ChatTemplate> from_metadata(const gguf::Metadata& metadata);
  /// `add_generation_prompt` opens the assistant's turn. Control tokens appear as text; encode with
  /// parse_special.
  virtual std::string render(std::span<const Message> messages, bool add_generation_prompt = true) const = 0;
  virtual std::string_view style() const = 0;
};

}  // namespace quipu::text
