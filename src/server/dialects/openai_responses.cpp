// POST /v1/responses. Source: https://platform.openai.com/docs/api-reference/responses
#include <boost/json.hpp>
#include <utility>

#include "core/error.hpp"
#include "server/dialects/openai.hpp"
#include "text/unicode.hpp"

namespace quipu::server::openai {

namespace json = boost::json;

namespace {

// ---- requests: the same conversation as a chat request has it ----

/// Text of a string or of a list of text parts.
std::string read_parts(const json::value& value, const std::string& path) {
  if (value.is_string()) return std::string(as_text(value));
  if (!value.is_array())
    bad_field(path, "\"{}\" is {}, expected a string or a list of parts", path, kind_of(value));
  std::string text;
  for (const json::value& part : value.get_array()) {
    if (!part.is_object()) bad_field(path, "\"{}\" holds {}, expected parts", path, kind_of(part));
    const Fields fields(part.get_object(), path);
    const std::string type = fields.text("type").value_or("");
    if (type != "input_text" && type != "output_text" && type != "text" && type != "reasoning_text" &&
        type != "summary_text" && type != "refusal")
      bad_field(path, "\"{}\" holds a part of type \"{}\"; this model reads text only", path,
                printable(type, 40));
    text += fields.text(type == "refusal" ? "refusal" : "text").value_or("");
  }
  return text;
}

class InputReader {
 public:
  json::array read(const Fields& fields) {
    if (const auto instructions = fields.text("instructions"))
      messages_.push_back(json::object{{"role", "system"}, {"content", *instructions}});
    const json::value* input = fields.find("input");
    if (input == nullptr) bad_field("input", "\"input\" is missing, expected a string or a list of items");
    if (input->is_string()) {
      messages_.push_back(json::object{{"role", "user"}, {"content", *input}});
    } else {
      const json::array* items = fields.array("input");
      if (items->empty()) bad_field("input", "\"input\" is empty, expected at least one item");
      for (std::size_t i = 0; i < items->size(); ++i) {
        const std::string path = fmt::format("input[{}]", i);
        if (!(*items)[i].is_object())
          bad_field(path, "\"{}\" is {}, expected an object", path, kind_of((*items)[i]));
        read_item(Fields((*items)[i].get_object(), path));
      }
    }
    if (!reasoning_.empty()) assistant();  // with nothing said behind it
    return std::move(messages_);
  }

 private:
  /// The assistant's message that goes on, or a new one.
  json::object& assistant() {
    const bool goes_on =
        !messages_.empty() && messages_.back().at("role") == "assistant" && reasoning_.empty();
    if (!goes_on) messages_.push_back(json::object{{"role", "assistant"}, {"content", ""}});
    json::object& message = messages_.back().get_object();
    if (!reasoning_.empty()) message["reasoning_content"] = std::exchange(reasoning_, {});
    return message;
  }

  void read_item(const Fields& item) {
    const std::string type = item.text("type").value_or("message");
    if (type == "message") {
      const std::string role = item.text("role").value_or("");
      const json::value* content = item.find("content");
      if (content == nullptr) bad_field(item.path("content"), "\"{}\" is missing", item.path("content"));
      std::string text = read_parts(*content, item.path("content"));
      if (role == "assistant" && !reasoning_.empty()) {
        assistant()["content"] = text;
      } else if (role == "user" || role == "assistant" || role == "system" || role == "developer") {
        messages_.push_back(json::object{{"role", role}, {"content", text}});
      } else {
        bad_field(item.path("role"), "\"{}\" is \"{}\", expected user, assistant, system or developer",
                  item.path("role"), printable(role, 40));
      }
    } else if (type == "reasoning") {
      if (const json::value* content = item.find("content"))
        reasoning_ += read_parts(*content, item.path("content"));
    } else if (type == "function_call") {
      const std::string id = needed(item, "call_id"), name = needed(item, "name");
      names_.emplace_back(id, name);
      json::object& message = assistant();
      if (!message.contains("tool_calls")) message["tool_calls"] = json::array();
      message["tool_calls"].get_array().push_back(json::object{
          {"id", id},
          {"type", "function"},
          {"function", json::object{{"name", name}, {"arguments", item.text("arguments").value_or("{}")}}}});
    } else if (type == "function_call_output") {
      const json::value* output = item.find("output");
      if (output == nullptr) bad_field(item.path("output"), "\"{}\" is missing", item.path("output"));
      json::object message{{"role", "tool"}, {"content", read_parts(*output, item.path("output"))}};
      const std::string id = needed(item, "call_id");
      message["tool_call_id"] = id;
      for (const auto& [known, name] : names_) {
        if (known == id) message["name"] = name;
      }
      messages_.push_back(std::move(message));
    } else {
      bad_field(item.path("type"),
                "\"{}\" is \"{}\", expected message, reasoning, function_call or "
                "function_call_output",
                item.path("type"), printable(type, 40));
    }
  }

  static std::string needed(const Fields& item, std::string_view name) {
    const auto text = item.text(name);
    if (!text || text->empty()) bad_field(item.path(name), "\"{}\" is missing", item.path(name));
    return *text;
  }

  json::array messages_;
  std::string reasoning_;                                   // of the assistant's next message
  std::vector<std::pair<std::string, std::string>> names_;  // of calls, by id
};

json::array chat_tools(const Fields& fields) {
  json::array tools;
  const json::array* list = fields.array("tools");
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const std::string path = fmt::format("tools[{}]", i);
    if (!(*list)[i].is_object())
      bad_field(path, "\"{}\" is {}, expected an object", path, kind_of((*list)[i]));
    const Fields tool((*list)[i].get_object(), path);
    const std::string type = tool.text("type").value_or("");
    if (type != "function")
      bad_field(tool.path("type"), "\"{}\" is \"{}\"; this server knows functions only", tool.path("type"),
                printable(type, 40));
    json::object function;
    for (const std::string_view name : {"name", "description", "parameters", "strict"}) {
      if (const json::value* value = tool.find(name)) function[name] = *value;
    }
    tools.push_back(json::object{{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

/// The request as POST /v1/chat/completions would have it.
json::object as_chat(const json::object& body) {
  const Fields fields(body);
  if (fields.has("previous_response_id") || fields.has("conversation"))
    bad_field(fields.has("conversation") ? "conversation" : "previous_response_id",
              "responses are not stored here: send the whole conversation as \"input\"");
  if (fields.boolean("background").value_or(false))
    bad_field("background", "\"background\" is not supported: responses are not stored here");
  json::object chat = body;
  for (const std::string_view name : {"input", "instructions", "text", "reasoning", "tools", "tool_choice",
                                      "max_output_tokens", "top_logprobs", "metadata", "prompt"})
    chat.erase(name);
  if (fields.has("prompt")) bad_field("prompt", "\"prompt\" is not supported: there are no stored prompts");
  chat["messages"] = InputReader().read(fields);
  if (json::array tools = chat_tools(fields); !tools.empty()) chat["tools"] = std::move(tools);
  if (const json::value* choice = fields.find("tool_choice")) {
    chat["tool_choice"] = *choice;
    if (const json::object* named = choice->if_object()) {
      const std::string name = Fields(*named, "tool_choice").text("name").value_or("");
      chat["tool_choice"] = json::object{{"type", "function"}, {"function", json::object{{"name", name}}}};
    }
  }
  if (const json::value* most = fields.find("max_output_tokens")) chat["max_completion_tokens"] = *most;
  if (const auto top = fields.integer("top_logprobs", 0, 20); top && *top > 0) {
    chat["logprobs"] = true;
    chat["top_logprobs"] = *top;
  }
  if (const json::object* reasoning = fields.object("reasoning")) {
    if (const json::value* effort = Fields(*reasoning, "reasoning").find("effort"))
      chat["reasoning_effort"] = *effort;
  }
  if (const json::object* text = fields.object("text")) {
    if (const json::object* format = Fields(*text, "text").object("format")) {
      const std::string type = Fields(*format, "text.format").text("type").value_or("");
      json::object wanted{{"type", type}};
      if (type == "json_schema") wanted["json_schema"] = *format;
      chat["response_format"] = std::move(wanted);
    }
  }
  return chat;
}

// ---- answers ----

json::array logprobs_array(const std::vector<TokenLogprob>& tokens) {
  const auto object_of = [](const TokenChoice& token) {
    json::array bytes;
    for (const char c : token.bytes)
      bytes.push_back(static_cast<std::int64_t>(static_cast<unsigned char>(c)));
    return json::object{{"token", text::valid_utf8(token.bytes)},
                        {"logprob", token.log_probability},
                        {"bytes", std::move(bytes)}};
  };
  json::array list;
  for (const TokenLogprob& token : tokens) {
    json::object object = object_of(token);
    json::array top;
    for (const TokenChoice& other : token.top) top.push_back(object_of(other));
    object["top_logprobs"] = std::move(top);
    list.push_back(std::move(object));
  }
  return list;
}

json::object message_item(const std::string& id, std::string_view status, json::array content) {
  return {{"id", id},
          {"type", "message"},
          {"status", status},
          {"role", "assistant"},
          {"content", std::move(content)}};
}
json::object text_part(const std::string& text, json::array logprobs) {
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", json::array()},
          {"logprobs", std::move(logprobs)}};
}
json::object reasoning_item(const std::string& id, std::string_view status, json::array content) {
  return {{"id", id},
          {"type", "reasoning"},
          {"summary", json::array()},
          {"content", std::move(content)},
          {"status", status}};
}
json::object reasoning_part(const std::string& text) { return {{"type", "reasoning_text"}, {"text", text}}; }
json::object call_item(const std::string& id, std::string_view status, const text::ToolCall& call) {
  return {{"id", id},           {"type", "function_call"}, {"status", status},
          {"call_id", call.id}, {"name", call.name},       {"arguments", call.arguments}};
}

class ResponsesAnswer final : public AnswerFormat {
 public:
  ResponsesAnswer(std::shared_ptr<Served> served, const json::object& body)
      : served_(std::move(served)), id_(make_id("resp_")), created_(unix_time()) {
    const auto given = [&](std::string_view name, json::value otherwise) {
      const json::value* value = body.if_contains(name);
      return value != nullptr && !value->is_null() ? *value : std::move(otherwise);
    };
    for (const std::string_view name : {"instructions", "max_output_tokens", "temperature", "top_p", "user"})
      echoed_[name] = given(name, nullptr);
    echoed_["metadata"] = given("metadata", json::object());
    echoed_["parallel_tool_calls"] = given("parallel_tool_calls", true);
    echoed_["tool_choice"] = given("tool_choice", "auto");
    echoed_["tools"] = given("tools", json::array());
    echoed_["text"] = given("text", json::object{{"format", json::object{{"type", "text"}}}});
    echoed_["reasoning"] = given("reasoning", json::object{{"effort", nullptr}, {"summary", nullptr}});
    echoed_["truncation"] = given("truncation", "disabled");
    echoed_["top_logprobs"] = given("top_logprobs", 0);
  }

  std::string whole(const std::vector<Outcome>& outcomes, const TotalUsage& usage) override {
    const Outcome& outcome = outcomes.front();
    const text::ParsedOutput& parsed = outcome.parsed;
    json::array output;
    if (!parsed.reasoning.empty())
      output.push_back(
          reasoning_item(make_id("rs_"), "completed", json::array{reasoning_part(parsed.reasoning)}));
    if (!parsed.content.empty() || (output.empty() && parsed.tool_calls.empty()))
      output.push_back(
          message_item(make_id("msg_"), cut(outcome) ? "incomplete" : "completed",
                       json::array{text_part(parsed.content, logprobs_array(outcome.logprobs))}));
    for (const text::ToolCall& call : parsed.tool_calls)
      output.push_back(call_item(make_id("fc_"), "completed", call));
    return json::serialize(response(std::move(output), &outcome, &usage));
  }

  /// Asked for when the first piece is made already: the first two numbers are kept for it.
  std::string begin() override {
    const json::object fields{{"response", response({}, nullptr, nullptr)}};
    return numbered("response.created", fields, 0) + numbered("response.in_progress", fields, 1);
  }

  std::string piece(const Piece& piece) override {
    std::string out;
    logprobs_.insert(logprobs_.end(), piece.logprobs.begin(), piece.logprobs.end());
    json::array of_tokens = logprobs_array(piece.logprobs);
    for (const text::OutputEvent& e : piece.events) {
      using Kind = text::OutputEvent::Kind;
      switch (e.kind) {
        case Kind::content:
          out += open_part(Open::message);
          text_ += e.text;
          out += event("response.output_text.delta",
                       at_part({{"delta", e.text}, {"logprobs", std::exchange(of_tokens, {})}}));
          break;
        case Kind::reasoning:
          out += open_part(Open::reasoning);
          text_ += e.text;
          out += event("response.reasoning_text.delta", at_part({{"delta", e.text}}));
          break;
        case Kind::tool_call:
          out += close();
          open_ = Open::call;
          item_id_ = make_id("fc_");
          call_ = {e.id, e.name, ""};
          out += event("response.output_item.added", {{"output_index", output_.size()},
                                                      {"item", call_item(item_id_, "in_progress", call_)}});
          break;
        case Kind::arguments:
          call_.arguments += e.text;
          out += event("response.function_call_arguments.delta", at_item({{"delta", e.text}}));
          break;
        case Kind::tool_call_end:
          out += close();
          break;
        case Kind::markup:
          break;
      }
    }
    return out;
  }

  std::string choice_end(const Outcome& outcome) override {
    std::string out;
    if (output_.empty() && open_ == Open::nothing) out += open_part(Open::message);
    out += close(cut(outcome) ? "incomplete" : "completed");
    // The counts come with `end`; all that is needed of the outcome till then.
    ended_ = Outcome();
    ended_.stop = outcome.stop;
    ended_.parsed.reasoning = outcome.parsed.reasoning;
    return out;
  }
  std::string end(const TotalUsage& usage) override {
    return event(cut(ended_) ? "response.incomplete" : "response.completed",
                 {{"response", response(std::move(output_), &ended_, &usage)}});
  }
  std::string failed(const RequestError& error) override {
    json::object fields = error_object(error);  // clients look for "error" in any event
    fields["code"] = fields.at("error").at("code");
    fields["message"] = fields.at("error").at("message");
    fields["param"] = fields.at("error").at("param");
    return event("error", std::move(fields));
  }

 private:
  enum class Open { nothing, message, reasoning, call };

  static bool cut(const Outcome& outcome) { return finish_reason(outcome.stop) == "length"; }

  json::object response(json::array output, const Outcome* outcome, const TotalUsage* usage) const {
    json::object object;
    object["id"] = id_;
    object["object"] = "response";
    object["created_at"] = created_;
    object["status"] = outcome == nullptr ? "in_progress" : cut(*outcome) ? "incomplete" : "completed";
    object["background"] = false;
    object["error"] = nullptr;
    object["incomplete_details"] = nullptr;
    if (outcome != nullptr && cut(*outcome))
      object["incomplete_details"] = json::object{{"reason", "max_output_tokens"}};
    object["model"] = served_->entry.id;
    object["output"] = std::move(output);
    object["previous_response_id"] = nullptr;
    object["store"] = false;
    for (const auto& item : echoed_) object[item.key()] = item.value();
    object["usage"] = nullptr;
    if (usage != nullptr) {
      const text::Tokenizer& tokenizer = served_->model().tokenizer();
      object["usage"] =
          json::object{{"input_tokens", usage->prompt_tokens},
                       {"input_tokens_details", json::object{{"cached_tokens", usage->cached_tokens}}},
                       {"output_tokens", usage->completion_tokens},
                       {"output_tokens_details",
                        json::object{{"reasoning_tokens",
                                      tokenizer.encode(outcome->parsed.reasoning, {false, false}).size()}}},
                       {"total_tokens", usage->prompt_tokens + usage->completion_tokens}};
    }
    return object;
  }

  static std::string numbered(std::string_view type, json::object fields, std::int64_t number) {
    fields["type"] = type;
    fields["sequence_number"] = number;
    return fmt::format("event: {}\ndata: {}\n\n", type, json::serialize(fields));
  }
  std::string event(std::string_view type, json::object fields) {
    return numbered(type, std::move(fields), sequence_++);
  }
  json::object at_item(json::object fields) const {
    fields["item_id"] = item_id_;
    fields["output_index"] = output_.size();
    return fields;
  }
  json::object at_part(json::object fields) const {
    fields["content_index"] = 0;
    return at_item(std::move(fields));
  }
  json::object part() const {
    return open_ == Open::message ? text_part(text_, logprobs_array(logprobs_)) : reasoning_part(text_);
  }
  json::object item(std::string_view status, json::array content) const {
    return open_ == Open::message ? message_item(item_id_, status, std::move(content))
                                  : reasoning_item(item_id_, status, std::move(content));
  }

  /// Makes sure that an item of this kind takes what comes.
  std::string open_part(Open kind) {
    if (open_ == kind) return {};
    std::string out = close();
    open_ = kind;
    item_id_ = make_id(kind == Open::message ? "msg_" : "rs_");
    text_.clear();
    out += event("response.output_item.added",
                 {{"output_index", output_.size()}, {"item", item("in_progress", {})}});
    const json::object empty = kind == Open::message ? text_part("", {}) : reasoning_part("");
    return out + event("response.content_part.added", at_part({{"part", empty}}));
  }
  std::string close(std::string_view status = "completed") {
    if (open_ == Open::nothing) return {};
    std::string out;
    json::object done;
    if (open_ == Open::call) {
      out += event("response.function_call_arguments.done",
                   at_item({{"name", call_.name}, {"arguments", call_.arguments}}));
      done = call_item(item_id_, status, call_);
    } else {
      json::object fields{{"text", text_}};
      if (open_ == Open::message) fields["logprobs"] = logprobs_array(logprobs_);
      out += event(open_ == Open::message ? "response.output_text.done" : "response.reasoning_text.done",
                   at_part(std::move(fields)));
      out += event("response.content_part.done", at_part({{"part", part()}}));
      done = item(status, json::array{part()});
    }
    out += event("response.output_item.done", {{"output_index", output_.size()}, {"item", done}});
    output_.push_back(std::move(done));
    open_ = Open::nothing;
    return out;
  }

  std::shared_ptr<Served> served_;
  std::string id_;
  std::int64_t created_, sequence_ = 2;
  json::object echoed_;  // what the request said
  json::array output_;   // items that are complete
  Open open_ = Open::nothing;
  std::string item_id_, text_;
  text::ToolCall call_;
  std::vector<TokenLogprob> logprobs_;
  Outcome ended_;
};

}  // namespace

void responses(const std::shared_ptr<Call>& call) {
  auto body = std::make_shared<const json::object>(parse_body(call->request.body));
  const std::string model = Fields(*body).text("model").value_or("");
  call->with_model(model, [call, body](const std::shared_ptr<Served>& served) {
    const json::object chat = as_chat(*body);
    const Fields fields(chat);
    if (fields.integer("n").value_or(1) != 1)
      bad_field("n", "\"n\" is not supported: a response is one answer");
    GenerationRequest request = read_chat_request(fields, *served);
    call->generate(served, std::move(request), std::make_unique<ResponsesAnswer>(served, *body));
  });
}

}  // namespace quipu::server::openai
