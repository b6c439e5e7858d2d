// Conversations to prompt text.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf/gguf.hpp"
#include "text/conversation/conversation.hpp"
#include "text/jinja/jinja.hpp"
#include "text/text_range.hpp"
#include "text/tokenizer.hpp"

namespace quipu::text {

/// What a template is rendered with, in the shapes of OpenAI's API: see `jinja::parse_json`.
struct ChatRequest {
  jinja::Data messages;   ///< a list of mappings with "role", "content", perhaps "tool_calls" …
  jinja::Data tools;      ///< a list of tool definitions, or none
  jinja::Data documents;  ///< a list of mappings, or none
  bool add_generation_prompt = true;
  jinja::Template::Variables variables;  ///< further ones, such as enable_thinking; they win over the rest
  jinja::Template::Clock clock;          ///< for strftime_now; none: the machine's
};

/// Renders a conversation the way a model was trained to see it: by the Jinja template in its metadata.
/// Immutable; may be used from several threads.
class ChatTemplate {
 public:
  /// Texts of the special tokens by the names Hugging Face gives them (bos_token, eos_token …).
  using SpecialTokens = std::vector<std::pair<std::string, std::string>>;

  /// From tokenizer.chat_template and the special tokens of the vocabulary. A model without a template, or
  /// with one that is no string, gets none (null). A template that does not parse gives an object whose
  /// render() throws the reason.
  static std::unique_ptr<ChatTemplate> from_metadata(const gguf::Metadata& metadata);
  ChatTemplate(std::string_view source, SpecialTokens special_tokens);

  const std::string& source() const { return source_; }

  /// Throws `jinja::TemplateError`: the template does not parse, refuses the conversation (kind raised),
  /// fails on it, or runs into a limit.
  Rendered render(const ChatRequest& request, const jinja::Limits& limits = {}) const;
  /// Messages as they are, with the origin of every byte; encode it with `encode_rendered`.
  Rendered render_marked(std::span<const Message> messages, bool add_generation_prompt = true) const;
  /// The text alone. `add_generation_prompt` opens the assistant's turn. Control tokens appear as text.
  std::string render(std::span<const Message> messages, bool add_generation_prompt = true) const;

 private:
  std::unique_ptr<const jinja::Template> template_;    // null: did not parse
  std::unique_ptr<const jinja::TemplateError> error_;  // then why
  std::string source_;
  SpecialTokens special_tokens_;
};

/// Token ids of a rendered prompt from byte `begin` on, in which only what the template itself wrote becomes
/// control tokens: a message that spells one stays text.
std::vector<Token> encode_rendered(const Tokenizer& tokenizer, const Rendered& rendered,
                                   bool add_special = true, std::size_t begin = 0);

}  // namespace quipu::text
