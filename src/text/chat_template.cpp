#include "text/chat_template.hpp"

#include <algorithm>
#include <array>

#include "core/log.hpp"

namespace quipu::text {

namespace {

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

struct SpecialToken {
  std::string_view variable, id_key;
};
constexpr std::array<SpecialToken, 7> kSpecialTokens = {{
    {"bos_token", "tokenizer.ggml.bos_token_id"},
    {"eos_token", "tokenizer.ggml.eos_token_id"},
    {"unk_token", "tokenizer.ggml.unknown_token_id"},
    {"sep_token", "tokenizer.ggml.seperator_token_id"},  // spelt so in the format
    {"pad_token", "tokenizer.ggml.padding_token_id"},
    {"cls_token", "tokenizer.ggml.cls_token_id"},
    {"mask_token", "tokenizer.ggml.mask_token_id"},
}};

/// Roles are words of the protocol, not what a person wrote, and templates build control tokens from them
/// (`'<|' + role + '|>'`). Only these: a made-up role must not name a token.
bool is_known_role(std::string_view role) {
  constexpr std::array<std::string_view, 8> kRoles = {"system",    "user",     "assistant", "tool",
                                                      "developer", "function", "ipython",   "model"};
  return std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end();
}

void trust_roles(jinja::Data& messages) {
  auto* list = std::get_if<jinja::Data::List>(&messages.value);
  if (list == nullptr) return;
  for (jinja::Data& message : *list) {
    auto* fields = std::get_if<jinja::Data::Mapping>(&message.value);
    if (fields == nullptr) continue;
    for (auto& [key, value] : *fields) {
      auto* text = std::get_if<jinja::Data::Text>(&value.value);
      if (key == "role" && text != nullptr) text->trusted = is_known_role(text->bytes);
    }
  }
}

}  // namespace

std::unique_ptr<ChatTemplate> ChatTemplate::from_metadata(const gguf::Metadata& metadata) {
  const gguf::Value* value = metadata.find(kTemplateKey);
  if (value == nullptr) return nullptr;
  const std::string* source = std::get_if<std::string>(&value->data);
  if (source == nullptr) {
    log::warning("{}: {} is of type {}, expected a string; the model is used without a chat template",
                 metadata.origin(), kTemplateKey, gguf::to_string(value->type));
    return nullptr;
  }
  SpecialTokens special;
  const TextList* tokens = metadata.try_strings("tokenizer.ggml.tokens");
  for (const SpecialToken& token : kSpecialTokens) {
    const std::optional<std::uint64_t> id = metadata.try_uint(token.id_key);
    if (id && tokens != nullptr && *id < tokens->size()) special.emplace_back(token.variable, (*tokens)[*id]);
  }
  return std::make_unique<ChatTemplate>(*source, std::move(special));
}

ChatTemplate::ChatTemplate(std::string_view source, SpecialTokens special_tokens)
    : source_(source), special_tokens_(std::move(special_tokens)) {
  try {
    template_ = std::make_unique<const jinja::Template>(source);
  } catch (const jinja::TemplateError& error) {
    error_ = std::make_unique<const jinja::TemplateError>(error);
  }
}

Rendered ChatTemplate::render(const ChatRequest& request, const jinja::Limits& limits) const {
  if (error_ != nullptr) throw jinja::TemplateError(*error_);
  jinja::Template::Variables variables;
  for (const auto& [name, text] : special_tokens_) variables.emplace_back(name, jinja::Data(text, true));
  variables.emplace_back("messages", request.messages);
  trust_roles(variables.back().second);
  variables.emplace_back("tools", request.tools);
  variables.emplace_back("documents", request.documents);
  variables.emplace_back("add_generation_prompt", request.add_generation_prompt);
  variables.insert(variables.end(), request.variables.begin(), request.variables.end());
  return template_->render(variables, limits, request.clock);
}

Rendered ChatTemplate::render_marked(std::span<const Message> messages, bool add_generation_prompt) const {
  ChatRequest request;
  jinja::Data::List list;
  for (const Message& message : messages) list.push_back(to_data(message));
  request.messages = std::move(list);
  request.add_generation_prompt = add_generation_prompt;
  return render(request);
}

std::string ChatTemplate::render(std::span<const Message> messages, bool add_generation_prompt) const {
  return render_marked(messages, add_generation_prompt).text;
}

std::vector<Token> encode_rendered(const Tokenizer& tokenizer, const Rendered& rendered, bool add_special,
                                   std::size_t begin) {
  std::vector<TextRange> ranges;
  for (const TextRange& range : rendered.trusted)
    if (range.end > begin) ranges.push_back({std::max(range.begin, begin) - begin, range.end - begin});
  return tokenizer.encode(std::string_view(rendered.text).substr(begin),
                          {add_special, true, std::span<const TextRange>(ranges)});
}

}  // namespace quipu::text
