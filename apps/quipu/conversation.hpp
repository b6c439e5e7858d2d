// The messages of a chat, their tokens, and the file they are kept in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/model.hpp"
#include "text/conversation/chat_format.hpp"

namespace quipu::app {

class Conversation {
 public:
  /// `system` may be empty. Throws `Error` (unsupported) when the model has no chat template.
  Conversation(const models::Model& model, std::string system, std::vector<text::Tool> tools = {});

  void reset();
  /// Adds a user's message and returns the prompt that asks for the answer. The tokens of earlier turns stay
  /// as they were generated, so that their stored state can be used again.
  std::vector<text::Token> ask(std::string message);
  /// The same prompt again, after `drop_oldest`.
  std::vector<text::Token> prompt();
  /// How the model's answer to the last prompt must be read.
  text::OutputOptions output_options() const;
  const text::ChatFormat& format() const { return *format_; }
  const std::vector<text::Tool>& tools() const { return talk_.tools; }
  /// Records the answer to the last prompt: its parts, and the text and tokens they were read from.
  void answer(const text::ParsedOutput& parts, const std::string& text,
              const std::vector<std::int32_t>& tokens);
  /// Adds the result of a call; then `prompt()` asks for the answer to it.
  void result(const text::ToolCall& call, std::string text);
  /// Takes the last user's message back, with all that followed it (its answer failed).
  void withdraw();
  /// Forgets the oldest question and answer; false when there is only the present one.
  bool drop_oldest();

  /// JSON {"messages":[…]} in OpenAI's form, written atomically. Throws `Error` (io).
  void save(const std::string& path) const;
  /// Replaces the conversation. Throws `Error` (not_found, io, bad_file); the conversation is then unchanged.
  void load(const std::string& path);

  std::size_t size() const { return talk_.messages.size(); }

 private:
  const models::Model* model_;
  std::string system_;
  std::optional<text::ChatFormat> format_;
  text::Conversation talk_;
  text::OutputStart start_ = text::OutputStart::answer;
  std::string seen_text_;                 ///< what the model has read and written so far …
  std::vector<text::Token> seen_tokens_;  ///< … and the tokens of exactly that text
};

}  // namespace quipu::app
