// POST /v1/chat/completions
#include <boost/json.hpp>

#include "server/chat_prompt.hpp"
#include "server/dialects/openai.hpp"
#include "server/generation_fields.hpp"
#include "text/unicode.hpp"

namespace quipu::server::openai {

namespace json = boost::json;

namespace {

constexpr std::int64_t kMostChoices = 128, kMostTopLogprobs = 20;

json::object token_object(const TokenChoice& token) {
  json::object object;
  object["token"] = text::valid_utf8(token.bytes);
  object["logprob"] = token.log_probability;
  json::array bytes;
  for (const char c : token.bytes) bytes.push_back(static_cast<std::int64_t>(static_cast<unsigned char>(c)));
  object["bytes"] = std::move(bytes);
  return object;
}

json::value logprobs_object(const std::vector<TokenLogprob>& tokens, bool wanted) {
  if (!wanted) return nullptr;
  json::array content;
  for (const TokenLogprob& token : tokens) {
    json::object object = token_object(token);
    json::array top;
    for (const TokenChoice& other : token.top) top.push_back(token_object(other));
    object["top_logprobs"] = std::move(top);
    content.push_back(std::move(object));
  }
  json::object object;
  object["content"] = std::move(content);
  object["refusal"] = nullptr;
  return object;
}

class ChatFormat final : public AnswerFormat {
 public:
  ChatFormat(std::string model, bool logprobs, bool include_usage, std::size_t choices)
      : id_(make_id("chatcmpl-")),
        model_(std::move(model)),
        created_(unix_time()),
        logprobs_(logprobs),
        include_usage_(include_usage),
        begun_(choices) {}

  std::string whole(const std::vector<Outcome>& outcomes, const TotalUsage& usage) override {
    json::array choices;
    for (const Outcome& outcome : outcomes) {
      json::object choice;
      choice["index"] = outcome.choice;
      choice["message"] =
          json::object{{"role", "assistant"}, {"content", outcome.text}, {"refusal", nullptr}};
      choice["logprobs"] = logprobs_object(outcome.logprobs, logprobs_);
      choice["finish_reason"] = finish_reason(outcome.stop);
      choices.push_back(std::move(choice));
    }
    json::object object = frame("chat.completion");
    object["choices"] = std::move(choices);
    object["usage"] = usage_object(usage);
    return json::serialize(object);
  }

  std::string piece(const Piece& piece) override {
    return opening(piece.choice) + chunk(piece.choice, json::object{{"content", piece.text}},
                                         logprobs_object(piece.logprobs, logprobs_), nullptr);
  }
  std::string choice_end(const Outcome& outcome) override {
    return opening(outcome.choice) +
           chunk(outcome.choice, json::object{}, nullptr, json::value(finish_reason(outcome.stop)));
  }
  std::string end(const TotalUsage& usage) override {
    std::string last;
    if (include_usage_) {
      json::object object = frame("chat.completion.chunk");
      object["choices"] = json::array();
      object["usage"] = usage_object(usage);
      last = event(object);
    }
    return last + "data: [DONE]\n\n";
  }
  std::string failed(const RequestError& error) override { return event(error_object(error)); }

 private:
  json::object frame(std::string_view kind) const {
    json::object object;
    object["id"] = id_;
    object["object"] = kind;
    object["created"] = created_;
    object["model"] = model_;
    object["system_fingerprint"] = "quipu";
    return object;
  }
  std::string chunk(std::size_t index, json::object delta, json::value logprobs, json::value finish) const {
    json::object choice;
    choice["index"] = index;
    choice["delta"] = std::move(delta);
    choice["logprobs"] = std::move(logprobs);
    choice["finish_reason"] = std::move(finish);
    json::object object = frame("chat.completion.chunk");
    object["choices"] = json::array{std::move(choice)};
    if (include_usage_) object["usage"] = nullptr;
    return event(object);
  }
  /// The role comes once, before anything else of a choice.
  std::string opening(std::size_t index) {
    if (begun_[index]) return {};
    begun_[index] = true;
    return chunk(index, json::object{{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
  }

  std::string id_, model_;
  std::int64_t created_;
  bool logprobs_, include_usage_;
  std::vector<bool> begun_;
};

void refuse_what_cannot_be_obeyed(const Fields& fields) {
  if (const json::object* format = fields.object("response_format")) {
    const Fields inner(*format, "response_format");
    const std::string type = inner.text("type").value_or("");
    if (type != "text")
      bad_field("response_format", "\"response_format\" of type \"{}\" is not supported, expected \"text\"",
                printable(type, 40));
  }
  if (const json::value* choice = fields.find("tool_choice")) {
    const bool known = choice->is_string() && (as_text(*choice) == "auto" || as_text(*choice) == "none");
    if (!known)
      bad_field("tool_choice",
                "\"tool_choice\" is {}, supported are \"auto\" and \"none\": a call cannot be enforced",
                printable(json::serialize(*choice), 80));
  }
  refuse_field(fields, "functions", "give \"tools\"");
  refuse_field(fields, "function_call", "give \"tool_choice\"");
  refuse_field(fields, "audio", "answers are text");
  refuse_field(fields, "web_search_options", "this server does not search");
  refuse_field(fields, "grammar", "output cannot be constrained");
  if (const json::array* modalities = fields.array("modalities")) {
    for (const json::value& item : *modalities) {
      if (!item.is_string() || as_text(item) != "text")
        bad_field("modalities", "\"modalities\" holds {}, supported is \"text\"",
                  printable(json::serialize(item), 40));
    }
  }
}

}  // namespace

void chat_completions(const std::shared_ptr<Call>& call) {
  auto body = std::make_shared<const json::object>(parse_body(call->request.body));
  const std::string model = Fields(*body).text("model").value_or("");
  call->with_model(model, [call, body](const std::shared_ptr<Served>& served) {
    const Fields fields(*body);
    refuse_what_cannot_be_obeyed(fields);
    GenerationRequest request;
    request.options = read_generation_fields(fields, *served);
    request.options.max_tokens =
        read_max_tokens(fields, {"max_completion_tokens", "max_tokens"}, served->defaults.max_tokens);
    request.n = fields.integer("n", 1, kMostChoices).value_or(1);
    request.stream = fields.boolean("stream").value_or(false);
    const bool logprobs = fields.boolean("logprobs").value_or(false);
    const auto top = fields.integer("top_logprobs", 0, kMostTopLogprobs);
    if (top && !logprobs) bad_field("top_logprobs", "\"top_logprobs\" needs \"logprobs\" to be true");
    if (logprobs) request.logprobs = static_cast<std::size_t>(top.value_or(0));
    const text::Rendered rendered = render_chat(served->model(), read_chat_request(fields));
    request.prompts.push_back(text::encode_rendered(served->model().tokenizer(), rendered));
    auto format = std::make_unique<ChatFormat>(served->entry.id, logprobs, read_include_usage(fields),
                                               request.choices());
    call->generate(served, std::move(request), std::move(format));
  });
}

}  // namespace quipu::server::openai
