#include "answer_rules.hpp"

#include <algorithm>

#include "core/log.hpp"
#include "output.hpp"

namespace quipu::app {

std::optional<text::grammar::Grammar> answer_grammar(const text::ChatFormat& format,
                                                     std::span<const text::Tool> tools,
                                                     text::OutputStart start,
                                                     const text::Tokenizer& tokenizer,
                                                     const std::optional<text::grammar::Grammar>& asked,
                                                     std::int64_t budget) {
  using namespace text::grammar;
  const text::OutputFormat& output = *format.output();
  ToolGrammarOptions options;
  options.choice = ToolChoice::automatic;
  options.thinking = thinking_before(format.capabilities(), std::nullopt, start);
  options.thinking_budget =
      budget < 0 ? 0 : static_cast<std::uint32_t>(std::clamp<std::int64_t>(budget, 1, UINT32_MAX));
  options.controls = control_names(output, tokenizer);
  options.answer = asked;
  if (!tools.empty() && !output.calls.empty()) {
    ToolGrammar made = tool_grammar(tools, output, options);
    for (const ToolProblem& problem : made.problems)
      log::warning("{} ({})", problem.message,
                   problem.loose ? "its arguments are held to be a JSON object only" : "it cannot be called");
    if (made.grammar) return std::move(made.grammar);
  }
  if (asked)
    return after_reasoning(*asked, output, options.thinking, options.thinking_budget, options.controls);
  if (budget >= 0 && options.thinking != Thinking::none)
    return bounded_reasoning(output.reasoning, options.thinking, options.thinking_budget, options.controls);
  return std::nullopt;
}

AnswerPrinter::AnswerPrinter(std::shared_ptr<const text::OutputFormat> format,
                             const text::OutputOptions& options, bool print)
    : parser_(std::move(format), options), print_(print) {}

void AnswerPrinter::push(std::string_view text) {
  read_ += text.size();
  take(parser_.push(text));
}

const text::ParsedOutput& AnswerPrinter::finish(std::string_view whole) {
  if (whole.size() > read_) push(whole.substr(read_));
  take(parser_.finish());
  end_thought();
  return parts_;
}

void AnswerPrinter::take(const std::vector<text::OutputEvent>& events) {
  for (const text::OutputEvent& event : events) {
    parts_.add(event);
    if (!print_) continue;
    if (event.kind == text::OutputEvent::Kind::reasoning && stdout_is_terminal()) {
      if (!thinking_) write_stdout("\x1b[2m");
      thinking_ = true;
      write_stdout(event.text);
    } else if (event.kind == text::OutputEvent::Kind::content) {
      end_thought();
      write_stdout(event.text);
    }
  }
}

void AnswerPrinter::end_thought() {
  if (thinking_) write_stdout("\x1b[0m\n\n");
  thinking_ = false;
}

}  // namespace quipu::app
