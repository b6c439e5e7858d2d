#include "text/conversation/chat_format.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace quipu::text {

using jinja::Data;

namespace {

/// Stands where a final message ends, until the prompt is cut there.
constexpr std::string_view kEnd = "quipu:the-answer-goes-on-here";

std::string_view without_space_at_end(std::string_view text) {
  while (!text.empty() && std::string_view(" \t\r\n").find(text.back()) != std::string_view::npos)
    text.remove_suffix(1);
  return text;
}

bool ends_with(std::string_view text, std::string_view end) {
  return !end.empty() && text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

/// Whether the template's own last words open or close the reasoning.
OutputStart start_after(const Rendered& rendered, const ReasoningFormat& reasoning) {
  const std::string_view text = without_space_at_end(rendered.text);
  if (rendered.trusted.empty() || rendered.trusted.back().end < text.size()) return OutputStart::answer;
  if (ends_with(text, without_space_at_end(reasoning.open))) return OutputStart::reasoning;
  if (ends_with(text, reasoning.close)) return OutputStart::after_reasoning;
  return OutputStart::answer;
}

void cut(Rendered& rendered, std::size_t size) {
  rendered.text.resize(size);
  auto& ranges = rendered.trusted;
  while (!ranges.empty() && ranges.back().begin >= size) ranges.pop_back();
  if (!ranges.empty()) ranges.back().end = std::min(ranges.back().end, size);
}

}  // namespace

ChatFormat::ChatFormat(const ChatTemplate& chat)
    : chat_(&chat), capabilities_(probe_capabilities(chat)), output_(output_format_for(chat.source())) {
  if (!capabilities_.renders) return;
  Conversation plain;
  plain.messages = {{"user", "Hello"}};
  try {
    capabilities_.opens_reasoning = prompt(plain).start == OutputStart::reasoning;
  } catch (const Error&) {  // the same will be said of a real conversation
  }
}

Prompt ChatFormat::prompt(const Conversation& conversation, const jinja::Template::Clock& clock) const {
  Conversation marked;
  const Conversation* source = &conversation;
  OutputStart start = OutputStart::answer;
  if (conversation.continue_final_message) {
    if (conversation.messages.empty() || conversation.messages.back().role != "assistant" ||
        !conversation.messages.back().tool_calls.empty())
      fail(ErrorCode::invalid_argument,
           "the last message is to be continued, expected one of an assistant without tool_calls");
    marked = conversation;
    Message& last = marked.messages.back();
    if (last.content.empty() && !last.reasoning.empty()) {
      start = OutputStart::reasoning;
      last.reasoning += kEnd;
    } else {
      start = OutputStart::content;
      const std::string text = last.content.text();
      const std::string_view open = without_space_at_end(output_->reasoning.open);
      if (text.find(open) != std::string::npos && text.find(output_->reasoning.close) == std::string::npos)
        start = OutputStart::reasoning;
      last.content = text + std::string(kEnd);
    }
    source = &marked;
  }
  TemplateInput input = adapt_conversation(*source, capabilities_, *output_);
  ChatRequest request;
  request.messages = std::move(input.messages);
  if (capabilities_.functions_variable)
    request.variables = functions_variables(std::exchange(input.tools, {}), clock);
  request.tools = std::move(input.tools);
  request.documents = conversation.documents;
  request.add_generation_prompt = !conversation.continue_final_message;
  request.clock = clock;
  if (conversation.enable_thinking) {
    request.variables.emplace_back("enable_thinking", *conversation.enable_thinking);
    if (!capabilities_.thinking_switch.empty())
      request.variables.emplace_back(capabilities_.thinking_switch, *conversation.enable_thinking);
  }
  request.variables.insert(request.variables.end(), conversation.template_arguments.begin(),
                           conversation.template_arguments.end());
  Prompt prompt{chat_->render(request), start, output_};
  if (!conversation.continue_final_message) {
    prompt.start = start_after(prompt.rendered, output_->reasoning);
    return prompt;
  }
  const std::size_t place = prompt.rendered.text.find(kEnd);
  if (place == std::string::npos || prompt.rendered.text.find(kEnd, place + 1) != std::string::npos)
    fail(ErrorCode::unsupported,
         "the last message cannot be continued: the chat template does not show its end exactly once");
  cut(prompt.rendered, place);
  return prompt;
}

}  // namespace quipu::text
