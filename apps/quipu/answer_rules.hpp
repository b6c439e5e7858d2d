// What an answer must obey, and how it is printed, for the commands that talk with a model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "text/conversation/chat_format.hpp"
#include "text/grammar/tool_grammar.hpp"

namespace quipu::app {

/// One grammar for all of an answer: thoughts first where the model has them, of at most `budget` tokens
/// (negative: no limit; none is one token, for the model closes its thoughts itself), then calls of the
/// tools, or what was asked for. Nothing: anything may come. A tool whose parameters cannot be held is a
/// warning.
std::optional<text::grammar::Grammar> answer_grammar(const text::ChatFormat& format,
                                                     std::span<const text::Tool> tools,
                                                     text::OutputStart start,
                                                     const text::Tokenizer& tokenizer,
                                                     const std::optional<text::grammar::Grammar>& asked,
                                                     std::int64_t budget);

/// Takes an answer apart while it comes. At a terminal what the model thinks is dim; from a pipe only what it
/// says is printed.
class AnswerPrinter {
 public:
  /// `print` false: only takes it apart.
  AnswerPrinter(std::shared_ptr<const text::OutputFormat> format, const text::OutputOptions& options,
                bool print = true);

  void push(std::string_view text);
  /// All of the text, of which `push` may have got less.
  const text::ParsedOutput& finish(std::string_view whole);

 private:
  void take(const std::vector<text::OutputEvent>& events);
  void end_thought();

  text::OutputParser parser_;
  text::ParsedOutput parts_;
  std::size_t read_ = 0;
  bool print_, thinking_ = false;
};

}  // namespace quipu::app
