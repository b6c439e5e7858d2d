// What a model says, taken apart: the pieces that a parser of its output finds.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "text/conversation/conversation.hpp"

namespace quipu::text {

/// One step of an answer. The events of an answer, in order, account for each byte of the model's text
/// exactly once: `bytes` says for how many.
struct OutputEvent {
  enum class Kind {
    content,        ///< `text` was said; exactly the bytes it stands for
    reasoning,      ///< `text` was thought; exactly the bytes it stands for
    tool_call,      ///< a call begins: `call`, `id`, `name`
    arguments,      ///< `text` goes on with the arguments of `call`; the pieces together are JSON
    tool_call_end,  ///< `call` is finished; `complete` says whether its arguments are
    markup,         ///< `text` is only form: tags, separators, white space around them
  };
  Kind kind = Kind::content;
  std::string text = {};
  std::size_t bytes = 0;  ///< of the model's text
  std::size_t call = 0;   ///< index of the call in this answer, from 0
  std::string id = {}, name = {};
  bool complete = true;
};

/// A whole answer.
struct ParsedOutput {
  std::string content, reasoning;
  std::vector<ToolCall> tool_calls;

  void add(const OutputEvent& event);
};

}  // namespace quipu::text
