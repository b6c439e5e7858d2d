#include "conversation.hpp"

#include <boost/json.hpp>

#include "core/error.hpp"
#include "core/mapped_file.hpp"
#include "input.hpp"

namespace quipu::app {

Conversation::Conversation(const models::Model& model, std::string system)
    : model_(&model), system_(std::move(system)) {
  if (model.chat_template() == nullptr)
    fail(ErrorCode::unsupported, "{} has no chat template: `quipu run --raw` continues plain text",
         printable(model.file().name()));
  reset();
}

void Conversation::reset() {
  messages_.clear();
  if (!system_.empty()) messages_.push_back({"system", system_});
  seen_text_.clear();
  seen_tokens_.clear();
}

std::vector<text::Token> Conversation::prompt() {
  text::Rendered rendered = model_->chat_template()->render_marked(messages_);
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
  messages_.push_back({"user", std::move(message)});
  return prompt();
}

void Conversation::answer(const std::string& text, const std::vector<std::int32_t>& tokens) {
  messages_.push_back({"assistant", text});
  // Stop strings and the like leave tokens whose text is not part of the answer: then the next prompt is
  // encoded afresh.
  if (model_->tokenizer().decode(tokens) == text) {
    seen_text_ += text;
    seen_tokens_.insert(seen_tokens_.end(), tokens.begin(), tokens.end());
  } else {
    seen_text_.clear();
  }
}

void Conversation::withdraw() {
  if (!messages_.empty() && messages_.back().role == "user") messages_.pop_back();
  seen_text_.clear();
}

bool Conversation::drop_oldest() {
  const std::size_t first = !messages_.empty() && messages_.front().role == "system" ? 1 : 0;
  if (messages_.size() < first + 3) return false;
  messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(first),
                  messages_.begin() + static_cast<std::ptrdiff_t>(first + 2));
  seen_text_.clear();
  return true;
}

void Conversation::save(const std::string& path) const {
  namespace json = boost::json;
  json::array list;
  for (const text::Message& message : messages_)
    list.push_back(json::object{{"role", message.role}, {"content", message.content.text()}});
  const std::string text = json::serialize(json::object{{"messages", std::move(list)}}) + "\n";
  write_file_atomically(path, std::as_bytes(std::span(text)));
}

void Conversation::load(const std::string& path) {
  namespace json = boost::json;
  json::error_code error;
  const json::value root = json::parse(read_text_file(path), error);
  const json::value* list = !error && root.is_object() ? root.get_object().if_contains("messages") : nullptr;
  if (list == nullptr || !list->is_array())
    fail(ErrorCode::bad_file, "{} is no saved conversation: expected a JSON object with a list \"messages\"",
         printable(path));
  std::vector<text::Message> messages;
  for (const json::value& item : list->get_array()) {
    const json::value* role = item.is_object() ? item.get_object().if_contains("role") : nullptr;
    const json::value* content = item.is_object() ? item.get_object().if_contains("content") : nullptr;
    if (role == nullptr || !role->is_string() || content == nullptr || !content->is_string())
      fail(ErrorCode::bad_file, "{}: message {} has no \"role\" and \"content\" text", printable(path),
           messages.size());
    messages.push_back({role->get_string().c_str(),
                        std::string(content->get_string().data(), content->get_string().size())});
  }
  messages_ = std::move(messages);
  seen_text_.clear();
  seen_tokens_.clear();
}

}  // namespace quipu::app
