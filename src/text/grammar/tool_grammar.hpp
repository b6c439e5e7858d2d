// The grammar of tool calls, in the way in which a family of models writes them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/conversation/chat_format.hpp"
#include "text/grammar/grammar.hpp"
#include "text/output/output_format.hpp"

namespace quipu::text::grammar {

enum class ToolChoice {
  automatic,  ///< text as the model likes; what begins a call must become one
  required,   ///< at least one call, of any tool
  named,      ///< one call of a certain tool
};

/// Whether the model thinks before it answers.
enum class Thinking {
  none,
  possible,  ///< it may open its reasoning
  opened,    ///< the prompt has opened it
};

/// Whether thoughts may come first in an answer that begins so. `asked`: whether the model is to think; none:
/// as it does by itself.
Thinking thinking_before(const Capabilities& model, std::optional<bool> asked, OutputStart start);

struct ToolGrammarOptions {
  ToolChoice choice = ToolChoice::required;
  std::string name;          ///< of the named tool
  bool parallel = true;      ///< several calls, where the family can
  bool text_before = false;  ///< required: free text may come before the calls
  Thinking thinking = Thinking::none;
  std::uint32_t thinking_budget = 0;  ///< tokens; 0: no limit
  /// Names of the vocabulary's control tokens, see `control_names`.
  std::vector<std::string> controls;
  bool white_space = true;  ///< inside of arguments
  /// Automatic: the answer is a call or obeys this grammar, instead of free text.
  std::optional<Grammar> answer = {};
};

/// A tool whose parameters cannot be held, and why: the message names the tool, the path in its parameters,
/// the keyword.
struct ToolProblem {
  std::string tool;
  std::string message;
  /// It may be called all the same, with any JSON object (in elements: any text) as arguments: automatic
  /// choice of a tool that is not `strict`, where the schema is well-formed. False: it cannot be called; the
  /// other tools can.
  bool loose = false;
};

struct ToolGrammar {
  /// Nothing: no constraint is of use (automatic, where nothing marks the beginning of a call).
  std::optional<Grammar> grammar;
  std::vector<ToolProblem> problems;
};

/// Arguments obey the tool's parameters, with properties in any order. Throws `Error` (invalid_argument,
/// unsupported): no tool of that name, or none that can be called.
ToolGrammar tool_grammar(std::span<const Tool> tools, const OutputFormat& format,
                         const ToolGrammarOptions& options);

/// A grammar that begins only after the reasoning, or at once when that may be left out; where answers are
/// made of messages, in one for people.
Grammar after_reasoning(const Grammar& grammar, const OutputFormat& format, Thinking thinking,
                        std::uint32_t budget, std::span<const std::string> controls);

/// Reasoning of at most `budget` tokens, then any text.
Grammar bounded_reasoning(const ReasoningFormat& format, Thinking thinking, std::uint32_t budget,
                          std::span<const std::string> controls);

/// The names of a vocabulary's control tokens that occur in a format.
std::vector<std::string> control_names(const OutputFormat& format, const Tokenizer& tokenizer);

}  // namespace quipu::text::grammar
