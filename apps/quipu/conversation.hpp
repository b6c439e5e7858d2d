// The messages of a chat, their tokens, and the file they are kept in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/model.hpp"
#include "text/chat_template.hpp"

namespace quipu::app {

class Conversation {
 public:
  /// `system` may be empty. Throws `Error` (unsupported) when the model has no chat template.
  Conversation(const models::Model& model, std::string system);

  void reset();
  /// Adds a user's message and returns the prompt that asks for the answer. The tokens of earlier turns stay
  /// as they were generated, so that their stored state can be used again.
  std::vector<text::Token> ask(std::string message);
  /// The same prompt again, after `drop_oldest`.
  std::vector<text::Token> prompt();
  /// Records the answer to the last `ask`.
  void answer(const std::string& text, const std::vector<std::int32_t>& tokens);
  /// Takes the last user's message back (its answer failed).
  void withdraw();
  /// Forgets the oldest question and answer; false when there is only the present one.
  bool drop_oldest();

  /// JSON {"messages":[{"role","content"}]}, written atomically. Throws `Error` (io).
  void save(const std::string& path) const;
  /// Replaces the conversation. Throws `Error` (not_found, io, bad_file); the conversation is then unchanged.
  void load(const std::string& path);

  std::size_t size() const { return messages_.size(); }

 private:
  const models::Model* model_;
  std::string system_;
  std::vector<text::Message> messages_;
  std::string seen_text_;                 ///< what the model has read and written so far …
  std::vector<text::Token> seen_tokens_;  ///< … and the tokens of exactly that text
};

}  // namespace quipu::app
