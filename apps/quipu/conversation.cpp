#include "conversation.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/mapped_file.hpp"
#include "input.hpp"

namespace quipu::app {

Conversation::Conversation(const models::Model& model, std::string system, std::vector<text::Tool> tools)
    : model_(&model), system_(std::move(system)) {
  if (model.chat_template() == nullptr)
    fail(ErrorCode::unsupported, "{} has no chat template: `quipu run --raw` continues plain text",
         printable(model.file().name()));
  format_.emplace(*model.chat_template());
  talk_.tools = std::move(tools);
  reset();
}

void Conversation::reset() {
  talk_.messages.clear();
  if (!system_.empty()) talk_.messages.push_back({"system", system_});
  seen_text_.clear();
  seen_tokens_.clear();
}

std::vector<text::Token> Conversation::prompt() {
  text::Prompt prompt = format_->prompt(talk_);
  start_ = prompt.start;
  text::Rendered& rendered = prompt.rendered;
  std::string& text = rendered.text;
  const text::Tokenizer& tokenizer = model_->tokenizer();
  if (!seen_text_.empty() && text.compare(0, seen_text_.size(), seen_text_) == 0) {
    const auto rest = text::encode_rendered(tokenizer, rendered, false, seen_text_.size());
    seen_tokens_.insert(seen_tokens_.end(), rest.begin(), rest.end());
  } else {
    seen_tokens_ = text::encode_rendered(tokenizer, rendered);
  }
  seen_text_ = std::move(text);
  return seen_tokens_;
}

std::vector<text::Token> Conversation::ask(std::string message) {
  talk_.messages.push_back({"user", std::move(message)});
  return prompt();
}

text::OutputOptions Conversation::output_options() const {
  text::OutputOptions options;
  options.tools = talk_.tools;
  options.start = start_;
  options.id_seed = talk_.messages.size();  // ids need only differ within the conversation
  return options;
}

void Conversation::answer(const text::ParsedOutput& parts, const std::string& text,
                          const std::vector<std::int32_t>& tokens) {
  talk_.messages.push_back({"assistant", parts.content, parts.reasoning, parts.tool_calls});
  // Stop strings and the like leave tokens whose text is not part of the answer: then the next prompt is
  // encoded afresh.
  if (model_->tokenizer().decode(tokens) == text) {
    seen_text_ += text;
    seen_tokens_.insert(seen_tokens_.end(), tokens.begin(), tokens.end());
  } else {
    seen_text_.clear();
  }
}

void Conversation::result(const text::ToolCall& call, std::string text) {
  text::Message message{"tool", std::move(text)};
  message.tool_call_id = call.id;
  message.name = call.name;
  talk_.messages.push_back(std::move(message));
}

void Conversation::withdraw() {
  const std::size_t first = !talk_.messages.empty() && talk_.messages.front().role == "system" ? 1 : 0;
  bool asked = false;
  while (!asked && talk_.messages.size() > first) {
    asked = talk_.messages.back().role == "user";
    talk_.messages.pop_back();
  }
  seen_text_.clear();
}

bool Conversation::drop_oldest() {
  auto& messages = talk_.messages;
  const auto first = messages.begin() + (!messages.empty() && messages.front().role == "system" ? 1 : 0);
  // Up to the next question: the oldest one with its answer, calls and results.
  const auto is_question = [](const text::Message& message) { return message.role == "user"; };
  if (first == messages.end()) return false;
  const auto next = std::find_if(first + 1, messages.end(), is_question);
  if (next == messages.end()) return false;
  messages.erase(first, next);
  seen_text_.clear();
  return true;
}

void Conversation::save(const std::string& path) const {
  text::jinja::Data::List list;
  for (const text::Message& message : talk_.messages) list.push_back(text::to_data(message));
  const std::string text = text::to_json(text::jinja::Data::Mapping{{"messages", std::move(list)}}) + "\n";
  write_file_atomically(path, std::as_bytes(std::span(text)));
}

void Conversation::load(const std::string& path) {
  const std::string bytes = read_text_file(path);
  std::vector<text::Message> messages;
  try {
    const text::jinja::Data root = text::jinja::parse_json(bytes, "the file");
    const text::jinja::Data* list = text::find_member(root, "messages");
    if (list == nullptr) fail(ErrorCode::bad_file, "expected a JSON object with a list \"messages\"");
    messages = text::read_messages(*list);
  } catch (const Error& error) {
    fail(ErrorCode::bad_file, "{} is no saved conversation: {}", printable(path), error.message());
  }
  talk_.messages = std::move(messages);
  seen_text_.clear();
  seen_tokens_.clear();
}

}  // namespace quipu::app
