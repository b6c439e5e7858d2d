// POST /v1/chat/completions
#include <boost/json.hpp>
#include <utility>

#include "server/chat_prompt.hpp"
#include "server/dialects/openai.hpp"
#include "server/generation_fields.hpp"
#include "text/output/literals.hpp"
#include "text/unicode.hpp"

namespace quipu::server::openai {

namespace json = boost::json;

namespace {

constexpr std::int64_t kMostTopLogprobs = 20;

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

class ChatAnswer final : public AnswerFormat {
 public:
  ChatAnswer(std::string model, bool logprobs, bool include_usage, const GenerationRequest& request)
      : id_(make_id("chatcmpl-")),
        model_(std::move(model)),
        created_(unix_time()),
        logprobs_(logprobs),
        include_usage_(include_usage),
        begun_(request.choices()) {
    for (const std::string& warning : request.warnings) warnings_.emplace_back(warning);
  }

  std::string whole(const std::vector<Outcome>& outcomes, const TotalUsage& usage) override {
    json::array choices;
    for (const Outcome& outcome : outcomes) {
      json::object choice;
      choice["index"] = outcome.choice;
      choice["message"] = message(outcome.parsed);
      choice["logprobs"] = logprobs_object(outcome.logprobs, logprobs_);
      choice["finish_reason"] = finish(outcome);
      choices.push_back(std::move(choice));
    }
    json::object object = frame("chat.completion");
    object["choices"] = std::move(choices);
    object["usage"] = usage_object(usage);
    if (!warnings_.empty()) object["warnings"] = warnings_;
    return json::serialize(object);
  }

  std::string piece(const Piece& piece) override {
    std::string out = opening(piece.choice);
    json::value logprobs = logprobs_object(piece.logprobs, logprobs_ && !piece.logprobs.empty());
    for (const text::OutputEvent& event : piece.events) {
      json::object delta = delta_of(event);
      if (delta.empty()) continue;
      out += chunk(piece.choice, std::move(delta), std::exchange(logprobs, nullptr), nullptr);
    }
    // Of tokens whose text is only form, or not certain yet.
    if (!logprobs.is_null())
      out += chunk(piece.choice, json::object{{"content", ""}}, std::move(logprobs), nullptr);
    return out;
  }
  std::string choice_end(const Outcome& outcome) override {
    return opening(outcome.choice) +
           chunk(outcome.choice, json::object{}, nullptr, json::value(finish(outcome)));
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
  static json::object call_object(std::size_t index, const std::string& id, const std::string& name,
                                  const std::string& arguments) {
    return {{"index", index},
            {"id", id},
            {"type", "function"},
            {"function", json::object{{"name", name}, {"arguments", arguments}}}};
  }
  static json::object message(const text::ParsedOutput& parsed) {
    json::object object;
    object["role"] = "assistant";
    const bool only_calls = parsed.content.empty() && !parsed.tool_calls.empty();
    object["content"] = only_calls ? json::value(nullptr) : json::value(parsed.content);
    object["refusal"] = nullptr;
    if (!parsed.reasoning.empty()) object["reasoning_content"] = parsed.reasoning;
    if (parsed.tool_calls.empty()) return object;
    json::array calls;
    for (const text::ToolCall& call : parsed.tool_calls) {
      json::object item = call_object(calls.size(), call.id, call.name, call.arguments);
      item.erase("index");  // of streams only
      calls.push_back(std::move(item));
    }
    object["tool_calls"] = std::move(calls);
    return object;
  }
  /// Empty for what a client does not see.
  static json::object delta_of(const text::OutputEvent& event) {
    using Kind = text::OutputEvent::Kind;
    switch (event.kind) {
      case Kind::content:
        return {{"content", event.text}};
      case Kind::reasoning:
        return {{"reasoning_content", event.text}};
      case Kind::tool_call:
        return {{"tool_calls", json::array{call_object(event.call, event.id, event.name, "")}}};
      case Kind::arguments:
        return {
            {"tool_calls", json::array{json::object{{"index", event.call},
                                                    {"function", json::object{{"arguments", event.text}}}}}}};
      case Kind::tool_call_end:
      case Kind::markup:
        break;
    }
    return {};
  }
  static std::string_view finish(const Outcome& outcome) {
    const std::string_view reason = finish_reason(outcome.stop);
    const auto& calls = outcome.parsed.tool_calls;
    // An answer of calls that was led to its end as its tokens ran out has whole ones: clients run them.
    const bool whole = reason == "stop" || (outcome.parsed.content.empty() && !calls.empty() &&
                                            text::is_json(calls.back().arguments));
    return whole && !calls.empty() ? "tool_calls" : reason;
  }
  json::object frame(std::string_view kind) const {
    json::object object;
    object["id"] = id_;
    object["object"] = kind;
    object["created"] = created_;
    object["model"] = model_;
    object["system_fingerprint"] = "quipu";
    return object;
  }
  std::string chunk(std::size_t index, json::object delta, json::value logprobs, json::value finish) {
    json::object choice;
    choice["index"] = index;
    choice["delta"] = std::move(delta);
    choice["logprobs"] = std::move(logprobs);
    choice["finish_reason"] = std::move(finish);
    json::object object = frame("chat.completion.chunk");
    object["choices"] = json::array{std::move(choice)};
    if (include_usage_) object["usage"] = nullptr;
    if (!warnings_.empty()) object["warnings"] = std::exchange(warnings_, {});
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
  json::array warnings_;  // tools that cannot be held; streams say so once
};

CallChoice read_tool_choice(const Fields& fields) {
  using text::grammar::ToolChoice;
  const bool parallel = fields.boolean("parallel_tool_calls").value_or(true);
  const json::value* choice = fields.find("tool_choice");
  if (choice == nullptr) return {ToolChoice::automatic, "", parallel};
  if (choice->is_string()) {
    const std::string_view word = as_text(*choice);
    if (word == "auto" || word == "none") return {ToolChoice::automatic, "", parallel};
    if (word == "required" || word == "any") return {ToolChoice::required, "", parallel};
  } else if (choice->is_object()) {
    const Fields named(choice->get_object(), "tool_choice");
    if (const json::object* function = named.object("function")) {
      const auto name = Fields(*function, "tool_choice.function").text("name");
      if (name && !name->empty()) return {ToolChoice::named, *name, parallel};
    }
  }
  bad_field("tool_choice",
            "\"tool_choice\" is {}, expected \"auto\", \"none\", \"required\" or "
            "{{\"type\":\"function\",\"function\":{{\"name\":…}}}}",
            printable(json::serialize(*choice), 80));
}

void refuse_what_cannot_be_obeyed(const Fields& fields) {
  refuse_field(fields, "functions", "give \"tools\"");
  refuse_field(fields, "function_call", "give \"tool_choice\"");
  refuse_field(fields, "audio", "answers are text");
  refuse_field(fields, "web_search_options", "this server does not search");
  if (const json::array* modalities = fields.array("modalities")) {
    for (const json::value& item : *modalities) {
      if (!item.is_string() || as_text(item) != "text")
        bad_field("modalities", "\"modalities\" holds {}, supported is \"text\"",
                  printable(json::serialize(item), 40));
    }
  }
}

}  // namespace

GenerationRequest read_chat_request(const Fields& fields, const Served& served) {
  refuse_what_cannot_be_obeyed(fields);
  GenerationRequest request;
  request.options = read_generation_fields(fields, served);
  read_placement(fields, request);
  request.options.max_tokens =
      read_max_tokens(fields, {"max_completion_tokens", "max_tokens"}, served.defaults.max_tokens);
  request.n = fields.integer("n", 1, kMostChoices).value_or(1);
  request.stream = fields.boolean("stream").value_or(false);
  const bool logprobs = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, kMostTopLogprobs);
  if (top && !logprobs) bad_field("top_logprobs", "\"top_logprobs\" needs \"logprobs\" to be true");
  if (logprobs) request.logprobs = static_cast<std::size_t>(top.value_or(0));
  const text::Conversation conversation = read_conversation(fields);
  const text::Prompt prompt = make_prompt(served, conversation);
  request.prompts.push_back(text::encode_rendered(served.model().tokenizer(), prompt.rendered));
  hold_answer(request, fields, served, conversation, prompt, read_tool_choice(fields));
  request.parse_reasoning = fields.text("reasoning_format").value_or("auto") != "none";
  return request;
}

void chat_completions(const std::shared_ptr<Call>& call) {
  auto body = std::make_shared<const json::object>(parse_body(call->request.body));
  const std::string model = Fields(*body).text("model").value_or("");
  call->with_model(model, [call, body](const std::shared_ptr<Served>& served) {
    const Fields fields(*body);
    GenerationRequest request = read_chat_request(fields, *served);
    auto format = std::make_unique<ChatAnswer>(served->entry.id, request.logprobs.has_value(),
                                               read_include_usage(fields), request);
    call->generate(served, std::move(request), std::move(format));
  });
}

}  // namespace quipu::server::openai
