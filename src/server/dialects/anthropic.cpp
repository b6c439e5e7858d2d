// Anthropic's messages. Source: https://docs.anthropic.com/en/api/messages
#include <boost/json.hpp>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "server/chat_prompt.hpp"
#include "server/dialects/dialects.hpp"
#include "server/dialects/openai.hpp"
#include "server/generation_fields.hpp"

namespace quipu::server {

namespace json = boost::json;

namespace {

std::string_view type_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::unauthorized:
      return "authentication_error";
    case ErrorKind::forbidden:
      return "permission_error";
    case ErrorKind::not_found:
    case ErrorKind::unknown_model:
      return "not_found_error";
    case ErrorKind::too_large:
      return "request_too_large";
    case ErrorKind::busy:
      return "rate_limit_error";
    case ErrorKind::unavailable:
      return "overloaded_error";
    case ErrorKind::internal:
      return "api_error";
    default:
      return "invalid_request_error";
  }
}

json::object error_object(const RequestError& error) {
  std::string message = error.message();
  if (error.kind() == ErrorKind::context_overflow && error.context > 0)
    message = fmt::format("prompt is too long: {} tokens > {} maximum ({})", error.prompt_tokens,
                          error.context, error.message());
  return {{"type", "error"}, {"error", json::object{{"type", type_of(error.kind())}, {"message", message}}}};
}

// ---- conversations ----

/// The texts of a string or of a list of text blocks.
text::Content read_text(const json::value& value, const std::string& path) {
  if (value.is_string()) return text::Content(as_text(value));
  if (!value.is_array())
    bad_field(path, "{} is {}, expected a string or a list of blocks", path, kind_of(value));
  text::Content content;
  for (const json::value& block : value.get_array()) {
    if (!block.is_object()) bad_field(path, "{} holds {}, expected blocks", path, kind_of(block));
    const Fields fields(block.get_object(), path);
    const std::string type = fields.text("type").value_or("");
    if (type != "text")
      bad_field(path, "{} holds a block of type \"{}\"; this model reads text only", path,
                printable(type, 40));
    content.parts.push_back({text::ContentPart::Kind::text, fields.text("text").value_or("")});
  }
  return content;
}

class ConversationReader {
 public:
  text::Conversation read(const Fields& fields) {
    if (const json::value* system = fields.find("system"))
      conversation_.messages.push_back({"system", read_text(*system, "system")});
    const json::array* messages = fields.array("messages");
    if (messages == nullptr || messages->empty())
      bad_field("messages", "messages: expected a list of at least one message");
    for (std::size_t i = 0; i < messages->size(); ++i) {
      const std::string path = fmt::format("messages.{}", i);
      if (!(*messages)[i].is_object())
        bad_field(path, "{} is {}, expected an object", path, kind_of((*messages)[i]));
      read_message(Fields((*messages)[i].get_object(), path));
    }
    // An answer that the client has begun is gone on with.
    const text::Message& last = conversation_.messages.back();
    conversation_.continue_final_message = last.role == "assistant" && last.tool_calls.empty();
    read_tools(fields);
    if (const json::object* thinking = fields.object("thinking"))
      conversation_.enable_thinking = Fields(*thinking, "thinking").text("type").value_or("") == "enabled";
    return std::move(conversation_);
  }

 private:
  void read_message(const Fields& fields) {
    const std::string role = fields.text("role").value_or("");
    if (role != "user" && role != "assistant" && role != "system")
      bad_field(fields.path("role"), "{} is \"{}\", expected user or assistant", fields.path("role"),
                printable(role, 40));
    const json::value* content = fields.find("content");
    if (content == nullptr) bad_field(fields.path("content"), "{}: field required", fields.path("content"));
    text::Message message{role};
    if (!content->is_array()) {
      message.content = read_text(*content, fields.path("content"));
      conversation_.messages.push_back(std::move(message));
      return;
    }
    for (std::size_t i = 0; i < content->get_array().size(); ++i) {
      const std::string path = fmt::format("{}.{}", fields.path("content"), i);
      const json::value& block = content->get_array()[i];
      if (!block.is_object()) bad_field(path, "{} is {}, expected an object", path, kind_of(block));
      read_block(Fields(block.get_object(), path), message);
    }
    const bool only_results = message.content.parts.empty() && role == "user" && results_;
    if (!only_results) conversation_.messages.push_back(std::move(message));
    results_ = false;
  }

  void read_block(const Fields& block, text::Message& message) {
    const std::string type = block.text("type").value_or("");
    if (type == "text") {
      message.content.parts.push_back({text::ContentPart::Kind::text, block.text("text").value_or("")});
    } else if (type == "thinking") {
      message.reasoning += block.text("thinking").value_or("");
    } else if (type == "redacted_thinking") {
      // says nothing to anybody else
    } else if (type == "tool_use") {
      const json::object* input = block.object("input");
      text::ToolCall call{block.text("id").value_or(""), block.text("name").value_or(""),
                          input == nullptr ? "{}" : json::serialize(*input)};
      calls_.emplace_back(call.id, call.name);
      message.tool_calls.push_back(std::move(call));
    } else if (type == "tool_result") {
      text::Message result{"tool"};
      if (const json::value* content = block.find("content"))
        result.content = read_text(*content, block.path("content"));
      result.tool_call_id = block.text("tool_use_id").value_or("");
      for (const auto& [id, name] : calls_) {
        if (id == result.tool_call_id) result.name = name;
      }
      conversation_.messages.push_back(std::move(result));
      results_ = true;
    } else {
      bad_field(block.path("type"), "{} is \"{}\"; this model reads text only", block.path("type"),
                printable(type, 40));
    }
  }

  void read_tools(const Fields& fields) {
    if (const json::object* choice = fields.object("tool_choice")) {
      const std::string type = Fields(*choice, "tool_choice").text("type").value_or("");
      if (type == "none") return;
    }
    const json::array* tools = fields.array("tools");
    if (tools == nullptr) return;
    json::array list;
    for (const json::value& tool : *tools) {
      const std::string path = fmt::format("tools.{}", list.size());
      if (!tool.is_object()) bad_field(path, "{} is {}, expected an object", path, kind_of(tool));
      const Fields item(tool.get_object(), path);
      if (const auto type = item.text("type"); type && *type != "custom")
        bad_field(item.path("type"), "{} is \"{}\": this server has no tools of its own", item.path("type"),
                  printable(*type, 40));
      json::object function;
      function["name"] = item.text("name").value_or("");
      if (const auto description = item.text("description")) function["description"] = *description;
      if (const json::object* schema = item.object("input_schema")) function["parameters"] = *schema;
      list.push_back(json::object{{"type", "function"}, {"function", std::move(function)}});
    }
    conversation_.tools = text::read_tools(to_template_data(list));
  }

  text::Conversation conversation_;
  std::vector<std::pair<std::string, std::string>> calls_;  // ids and names of earlier calls
  bool results_ = false;                                    // the message at hand had results
};

// ---- answers ----

std::string_view stop_reason(const Outcome& outcome) {
  switch (outcome.stop) {
    case engine::StopReason::max_tokens:
    case engine::StopReason::context_full:
      return "max_tokens";
    case engine::StopReason::stop_string:
      return "stop_sequence";
    default:
      return outcome.parsed.tool_calls.empty() ? "end_turn" : "tool_use";
  }
}

json::value stop_sequence(const Outcome& outcome) {
  return outcome.stop == engine::StopReason::stop_string ? json::value(outcome.stop_text)
                                                         : json::value(nullptr);
}

json::object usage_object(std::int64_t prompt, std::int64_t cached, std::int64_t output) {
  return {{"input_tokens", prompt - cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached},
          {"output_tokens", output}};
}

std::string event(std::string_view name, const json::object& data) {
  return fmt::format("event: {}\ndata: {}\n\n", name, json::serialize(data));
}

class MessageAnswer final : public AnswerFormat {
 public:
  MessageAnswer(std::string model, std::size_t prompt_tokens)
      : id_(openai::make_id("msg_")),
        model_(std::move(model)),
        prompt_tokens_(static_cast<std::int64_t>(prompt_tokens)) {}

  std::string whole(const std::vector<Outcome>& outcomes, const TotalUsage& usage) override {
    const Outcome& outcome = outcomes.front();
    json::array content;
    const text::ParsedOutput& parsed = outcome.parsed;
    if (!parsed.reasoning.empty())
      content.push_back(
          json::object{{"type", "thinking"}, {"thinking", parsed.reasoning}, {"signature", ""}});
    if (!parsed.content.empty() || parsed.tool_calls.empty())
      content.push_back(json::object{{"type", "text"}, {"text", parsed.content}});
    for (const text::ToolCall& call : parsed.tool_calls) {
      json::error_code error;
      json::value input = json::parse(call.arguments, error);
      if (error) input = json::object();
      content.push_back(json::object{
          {"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", std::move(input)}});
    }
    json::object message = frame();
    message["content"] = std::move(content);
    message["stop_reason"] = stop_reason(outcome);
    message["stop_sequence"] = stop_sequence(outcome);
    message["usage"] = usage_object(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens);
    return json::serialize(message);
  }

  std::string begin() override {
    json::object message = frame();
    message["content"] = json::array();
    message["stop_reason"] = nullptr;
    message["stop_sequence"] = nullptr;
    message["usage"] = usage_object(prompt_tokens_, 0, 0);
    return event("message_start", {{"type", "message_start"}, {"message", std::move(message)}});
  }
  std::string piece(const Piece& piece) override {
    using Kind = text::OutputEvent::Kind;
    std::string out;
    for (const text::OutputEvent& e : piece.events) {
      switch (e.kind) {
        case Kind::content:
          out += enter("text", {{"type", "text"}, {"text", ""}});
          out += delta({{"type", "text_delta"}, {"text", e.text}});
          break;
        case Kind::reasoning:
          out += enter("thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
          out += delta({{"type", "thinking_delta"}, {"thinking", e.text}});
          break;
        case Kind::tool_call:
          out += leave();
          out += enter("tool_use",
                       {{"type", "tool_use"}, {"id", e.id}, {"name", e.name}, {"input", json::object()}});
          break;
        case Kind::arguments:
          out += delta({{"type", "input_json_delta"}, {"partial_json", e.text}});
          break;
        case Kind::tool_call_end:
          out += leave();
          break;
        case Kind::markup:
          break;
      }
    }
    return out;
  }
  std::string choice_end(const Outcome& outcome) override {
    std::string out = leave();
    json::object data;
    data["type"] = "message_delta";
    data["delta"] =
        json::object{{"stop_reason", stop_reason(outcome)}, {"stop_sequence", stop_sequence(outcome)}};
    data["usage"] = usage_object(outcome.usage.prompt_tokens, outcome.usage.cached_tokens,
                                 outcome.usage.completion_tokens);
    return out + event("message_delta", data);
  }
  std::string end(const TotalUsage&) override { return event("message_stop", {{"type", "message_stop"}}); }
  std::string failed(const RequestError& error) override { return event("error", error_object(error)); }
  std::string heartbeat() const override { return event("ping", {{"type", "ping"}}); }

 private:
  json::object frame() const {
    return {{"id", id_}, {"type", "message"}, {"role", "assistant"}, {"model", model_}};
  }
  std::string enter(std::string_view kind, json::object block) {
    if (open_ == kind) return {};
    std::string out = leave();
    open_ = kind;
    return out +
           event("content_block_start",
                 {{"type", "content_block_start"}, {"index", index_}, {"content_block", std::move(block)}});
  }
  std::string delta(json::object delta) const {
    return event("content_block_delta",
                 {{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(delta)}});
  }
  std::string leave() {
    if (open_.empty()) return {};
    open_.clear();
    return event("content_block_stop", {{"type", "content_block_stop"}, {"index", index_++}});
  }

  std::string id_, model_;
  std::int64_t prompt_tokens_;
  std::string open_;  // type of the block that is open
  std::int64_t index_ = 0;
};

CallChoice read_tool_choice(const Fields& fields) {
  using text::grammar::ToolChoice;
  const json::object* choice = fields.object("tool_choice");
  if (choice == nullptr) return {};
  const Fields inner(*choice, "tool_choice");
  const std::string type = inner.text("type").value_or(""), name = inner.text("name").value_or("");
  const bool parallel = !inner.boolean("disable_parallel_tool_use").value_or(false);
  if (type == "auto" || type == "none") return {ToolChoice::automatic, "", parallel};
  if (type == "any") return {ToolChoice::required, "", parallel};
  if (type == "tool" && !name.empty()) return {ToolChoice::named, name, parallel};
  bad_field("tool_choice", "tool_choice.type is \"{}\", expected auto, none, any, or tool with a name",
            printable(type, 40));
}

/// The request but for its limits, and its prompt.
GenerationRequest read_request(const Fields& fields, const std::shared_ptr<Served>& served) {
  GenerationRequest request;
  const text::Conversation conversation = ConversationReader().read(fields);
  const text::Prompt prompt = make_prompt(*served, conversation);
  request.prompts.push_back(text::encode_rendered(served->model().tokenizer(), prompt.rendered));
  request.options = read_generation_fields(fields, *served);
  read_placement(fields, request);
  request.options.stop = read_stop(fields, "stop_sequences");
  hold_answer(request, fields, *served, conversation, prompt, read_tool_choice(fields));
  return request;
}

void messages(const std::shared_ptr<Call>& call) {
  auto body = std::make_shared<const json::object>(parse_body(call->request.body));
  call->with_model(
      Fields(*body).text("model").value_or(""), [call, body](const std::shared_ptr<Served>& served) {
        const Fields fields(*body);
        const auto most = fields.integer("max_tokens", 1);
        if (!most) bad_field("max_tokens", "max_tokens: field required");
        GenerationRequest request = read_request(fields, served);
        request.options.max_tokens = *most;
        request.stream = fields.boolean("stream").value_or(false);
        auto format = std::make_unique<MessageAnswer>(served->entry.id, request.prompts.front().size());
        call->generate(served, std::move(request), std::move(format));
      });
}

void count_tokens(const std::shared_ptr<Call>& call) {
  auto body = std::make_shared<const json::object>(parse_body(call->request.body));
  call->with_model(
      Fields(*body).text("model").value_or(""), [call, body](const std::shared_ptr<Served>& served) {
        const GenerationRequest request = read_request(Fields(*body), served);
        call->respond_json(json::serialize(json::object{{"input_tokens", request.prompts.front().size()}}));
      });
}

class Anthropic final : public Dialect {
 public:
  std::vector<Route> routes() const override {
    return {{"POST", "/v1/messages", messages}, {"POST", "/v1/messages/count_tokens", count_tokens}};
  }
  http::Response error(const RequestError& error) const override {
    http::Response response;
    response.status = error.status();
    response.body = json::serialize(error_object(error));
    return response;
  }
  bool claims(std::string_view path) const override { return path.rfind("/v1/messages", 0) == 0; }
};

}  // namespace

std::unique_ptr<Dialect> make_anthropic_dialect() { return std::make_unique<Anthropic>(); }

}  // namespace quipu::server
