// Ollama's API. Source: docs/api.md of ollama.
#include <fmt/chrono.h>

#include <boost/json.hpp>
#include <ctime>
#include <functional>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "server/chat_prompt.hpp"
#include "server/dialects/dialects.hpp"
#include "server/dialects/embeddings.hpp"
#include "server/dialects/ollama_model.hpp"
#include "server/fill_in.hpp"
#include "server/generation_fields.hpp"
#include "text/unicode.hpp"

namespace quipu::server {

namespace json = boost::json;

namespace {

json::object error_body(const RequestError& error) {
  json::object object;
  object["error"] = error.message();
  if (error.kind() == ErrorKind::context_overflow && error.context > 0) {
    object["code"] = "context_length_exceeded";
    object["n_prompt_tokens"] = error.prompt_tokens;
    object["n_ctx"] = error.context;
  }
  return object;
}

/// RFC 3339, UTC.
std::string time_text(std::time_t time) {
  std::tm utc{};
  gmtime_r(&time, &utc);
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", utc);
}
std::string now_text() { return time_text(std::time(nullptr)); }

// ---- answers ----

class OllamaAnswer final : public AnswerFormat {
 public:
  /// `chat`: answers are messages, else plain responses. `name`: the model as the client called it.
  OllamaAnswer(std::string name, bool chat) : name_(std::move(name)), chat_(chat) {}

  std::string whole(const std::vector<Outcome>& outcomes, const TotalUsage&) override {
    const Outcome& outcome = outcomes.front();
    json::object object = frame(true);
    put(object, outcome.parsed.content, outcome.parsed.reasoning, calls_of(outcome.parsed.tool_calls));
    finish(object, outcome);
    return json::serialize(object);
  }
  std::string piece(const Piece& piece) override {
    std::string content, reasoning, out;
    for (const text::OutputEvent& event : piece.events) {
      calls_.add(event);
      if (event.kind == text::OutputEvent::Kind::content) content += event.text;
      if (event.kind == text::OutputEvent::Kind::reasoning) reasoning += event.text;
      if (event.kind != text::OutputEvent::Kind::tool_call_end) continue;
      out += line({}, {}, calls_of({calls_.tool_calls.back()}));  // whole, as the dialect has it
    }
    if (!content.empty() || !reasoning.empty()) out += line(content, reasoning, {});
    return out;
  }
  std::string choice_end(const Outcome& outcome) override {
    json::object object = frame(true);
    put(object, "", "", {});
    finish(object, outcome);
    return json::serialize(object) + "\n";
  }
  std::string end(const TotalUsage&) override { return {}; }
  std::string failed(const RequestError& error) override { return json::serialize(error_body(error)) + "\n"; }
  std::string stream_content_type() const override { return "application/x-ndjson"; }
  std::string heartbeat() const override { return "\n"; }

 private:
  json::object frame(bool done) const {
    return {{"model", name_}, {"created_at", now_text()}, {"done", done}};
  }
  static json::array calls_of(const std::vector<text::ToolCall>& calls) {
    json::array list;
    for (const text::ToolCall& call : calls) {
      json::error_code error;
      json::value arguments = json::parse(call.arguments, error);
      if (error) arguments = json::object();
      list.push_back(
          json::object{{"id", call.id},
                       {"function", json::object{{"name", call.name}, {"arguments", std::move(arguments)}}}});
    }
    return list;
  }
  void put(json::object& object, std::string_view content, std::string_view reasoning,
           json::array calls) const {
    if (!chat_) {
      object["response"] = content;
      if (!reasoning.empty()) object["thinking"] = reasoning;
      return;
    }
    json::object message{{"role", "assistant"}, {"content", content}};
    if (!reasoning.empty()) message["thinking"] = reasoning;
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    object["message"] = std::move(message);
  }
  std::string line(std::string_view content, std::string_view reasoning, json::array calls) const {
    json::object object = frame(false);
    put(object, content, reasoning, std::move(calls));
    return json::serialize(object) + "\n";
  }
  static void finish(json::object& object, const Outcome& outcome) {
    const bool length =
        outcome.stop == engine::StopReason::max_tokens || outcome.stop == engine::StopReason::context_full;
    const auto nanoseconds = [](double ms) { return static_cast<std::int64_t>(ms * 1e6); };
    object["done_reason"] = length ? "length" : "stop";
    object["total_duration"] = nanoseconds(outcome.usage.first_token_ms + outcome.usage.generation_ms);
    object["load_duration"] = 0;
    object["prompt_eval_count"] = outcome.usage.prompt_tokens;
    object["prompt_eval_duration"] = nanoseconds(outcome.usage.prompt_ms);
    object["eval_count"] = outcome.usage.completion_tokens;
    object["eval_duration"] = nanoseconds(outcome.usage.generation_ms);
  }

  std::string name_;
  bool chat_;
  text::ParsedOutput calls_;
};

// ---- requests ----

/// Sampling and limits of "options".
engine::Request read_options(const Fields& fields, const Served& served) {
  static const json::object kNone;
  const json::object* given = fields.object("options");
  const Fields options(given != nullptr ? *given : kNone, "options");
  engine::Request request = read_generation_fields(options, served);
  if (const auto most = options.integer("num_predict", -2)) request.max_tokens = *most < 0 ? -1 : *most;
  if (const auto window = options.integer("num_ctx", 1); window && *window > served.service->memory().context)
    bad_field("options.num_ctx", "options.num_ctx is {}, this server's context holds {} tokens (-c)", *window,
              served.service->memory().context);
  return request;
}

/// "format" as OpenAI's fields.
json::object read_format(const Fields& fields) {
  json::object as_openai;
  const json::value* format = fields.find("format");
  if (format == nullptr || (format->is_string() && format->get_string().empty())) return as_openai;
  if (format->is_string() && as_text(*format) == "json") {
    as_openai["response_format"] = json::object{{"type", "json_object"}};
  } else if (format->is_object()) {
    as_openai["json_schema"] = *format;
  } else {
    bad_field("format", "\"format\" is {}, expected \"json\" or a JSON schema",
              printable(json::serialize(*format), 60));
  }
  return as_openai;
}

void refuse_images(const Fields& fields) {
  const json::array* images = fields.array("images");
  if (images != nullptr && !images->empty())
    bad_field(fields.path("images"), "\"{}\" cannot be read: this model reads text only",
              fields.path("images"));
}

std::optional<bool> read_think(const Fields& fields) {
  const json::value* think = fields.find("think");
  if (think == nullptr) return std::nullopt;
  if (think->is_string()) return true;  // "low", "medium", "high"
  return fields.boolean("think");
}

void set_conversation(GenerationRequest& request, const Fields& fields,
                      const text::Conversation& conversation, const Served& served) {
  const text::Prompt prompt = make_prompt(served, conversation);
  request.prompts.push_back(text::encode_rendered(served.model().tokenizer(), prompt.rendered));
  const json::object format = read_format(fields);
  hold_answer(request, Fields(format), served, conversation, prompt, {});
}

/// What an empty request gets: the model was loaded, or is unloaded.
void answer_load(const std::shared_ptr<Call>& call, const std::string& name, bool unload, bool chat) {
  json::object object{{"model", name},
                      {"created_at", now_text()},
                      {"done", true},
                      {"done_reason", unload ? "unload" : "load"}};
  if (chat) {
    object["message"] = json::object{{"role", "assistant"}, {"content", ""}};
  } else {
    object["response"] = "";
  }
  call->respond_json(json::serialize(object));
}

bool asks_nothing(const Fields& fields, bool chat) {
  if (!chat) return fields.text("prompt").value_or("").empty();
  const json::array* messages = fields.array("messages");
  return messages == nullptr || messages->empty();
}

/// Runs `then` with the loaded model, unless the request is empty. One that only unloads loads nothing.
void with_ollama_request(
    const std::shared_ptr<Call>& call, bool chat,
    std::function<void(const Fields&, const std::shared_ptr<Served>&, const std::string&)> then) {
  auto body = std::make_shared<const json::object>(parse_body(call->request.body));
  const Fields all(*body);
  const std::string name = ollama_model_name(all);
  const bool empty = asks_nothing(all, chat);
  const std::optional<KeepAlive> keep = read_keep_alive(all);
  const bool unload = empty && keep && keep->idle && keep->idle->count() == 0;
  if (unload && call->context->models->state(name) == Models::State::unloaded)
    return answer_load(call, all.text("model").value_or(name), true, chat);
  call->with_model(name, [=, then = std::move(then)](const std::shared_ptr<Served>& served) {
    const Fields fields(*body);
    const std::string called = fields.text("model").value_or(served->entry.id);
    if (keep) call->context->models->keep(served->entry.id, keep->idle);
    if (empty) return answer_load(call, called, unload, chat);
    then(fields, served, called);
  });
}

void chat(const std::shared_ptr<Call>& call) {
  with_ollama_request(call, true, [call](const Fields& fields, const auto& served, const std::string& name) {
    const json::array* messages = fields.array("messages");
    for (std::size_t i = 0; i < messages->size(); ++i) {
      if ((*messages)[i].is_object())
        refuse_images(Fields((*messages)[i].get_object(), fmt::format("messages[{}]", i)));
    }
    GenerationRequest request;
    request.options = read_options(fields, *served);
    read_placement(fields, request);
    request.stream = fields.boolean("stream").value_or(true);
    text::Conversation conversation;
    conversation.messages = text::read_messages(to_template_data(*fields.find("messages")));
    if (const json::value* tools = fields.find("tools"))
      conversation.tools = text::read_tools(to_template_data(*tools));
    conversation.enable_thinking = read_think(fields);
    set_conversation(request, fields, conversation, *served);
    call->generate(served, std::move(request), std::make_unique<OllamaAnswer>(name, true));
  });
}

void generate(const std::shared_ptr<Call>& call) {
  with_ollama_request(call, false, [call](const Fields& fields, const auto& served, const std::string& name) {
    const std::string prompt = fields.text("prompt").value_or("");
    refuse_images(fields);
    refuse_field(fields, "template", "the model's own template is used; \"raw\" leaves it out");
    refuse_field(fields, "context", "send the conversation to /api/chat");
    GenerationRequest request;
    request.options = read_options(fields, *served);
    read_placement(fields, request);
    request.stream = fields.boolean("stream").value_or(true);
    if (const std::string suffix = fields.text("suffix").value_or(""); !suffix.empty()) {
      const auto tokens = fill_in_tokens(served->model());
      if (!tokens)
        bad_field("suffix", "\"suffix\" is not supported: the model has no fill-in-the-middle tokens");
      request.prompts.push_back(
          fill_in_prompt(*tokens, {prompt, suffix, "", {}}, served->model().tokenizer()).tokens);
    } else if (fields.boolean("raw").value_or(false) || served->chat_format == nullptr) {
      request.prompts.push_back(served->model().tokenizer().encode(prompt));
      const json::object format = read_format(fields);
      request.options.constraint = read_constraint(Fields(format), *served);
      request.output = std::make_shared<const text::OutputFormat>(text::general_output_format());
      request.parse_reasoning = false;
    } else {
      text::Conversation conversation;
      if (const auto system = fields.text("system"); system && !system->empty())
        conversation.messages.push_back({"system", *system});
      conversation.messages.push_back({"user", prompt});
      conversation.enable_thinking = read_think(fields);
      set_conversation(request, fields, conversation, *served);
    }
    call->generate(served, std::move(request), std::make_unique<OllamaAnswer>(name, false));
  });
}

// ---- models ----

json::object details_of(const Models::Listed& listed) {
  json::object details{{"parent_model", ""}, {"format", "gguf"}};
  if (!listed.served) return details;
  const models::Model& model = listed.served->model();
  const std::string& family = model.hyperparameters().architecture;
  const std::string description = model.description();  // "llama 135M Q4_1"
  const std::size_t last = description.rfind(' ');
  details["family"] = family;
  details["families"] = json::array{family};
  details["parameter_size"] = fmt::format("{:.1f}M", static_cast<double>(model.parameters()) / 1e6);
  details["quantization_level"] = last == std::string::npos ? description : description.substr(last + 1);
  return details;
}

json::object model_object(const Models::Listed& listed) {
  const std::string name = listed.entry.id + ":latest";
  std::error_code error;
  const auto size = std::filesystem::file_size(listed.entry.path, error);
  json::object object{{"name", name},
                      {"model", name},
                      {"modified_at", now_text()},
                      {"size", error ? 0 : size},
                      {"details", details_of(listed)}};
  if (listed.served) object["digest"] = fmt::format("{:016x}", listed.served->model().fingerprint());
  return object;
}

void tags(const std::shared_ptr<Call>& call) {
  json::array list;
  for (const Models::Listed& listed : call->context->models->refreshed_list())
    list.push_back(model_object(listed));
  call->respond_json(json::serialize(json::object{{"models", std::move(list)}}));
}

void ps(const std::shared_ptr<Call>& call) {
  json::array list;
  for (const Models::Listed& listed : call->context->models->list()) {
    if (!listed.served) continue;
    json::object object = model_object(listed);
    const engine::MemoryReport& memory = listed.served->service->memory();
    object["size"] = memory.weights + memory.kv + memory.scratch;
    object["size_vram"] = 0;
    object["context_length"] = memory.context;
    // Where it stays for ever: far away, as Ollama has it.
    const std::time_t now = std::time(nullptr);
    const std::time_t ends =
        listed.idle_left ? now + listed.idle_left->count() : now + std::time_t{100} * 365 * 86400;
    object["expires_at"] = time_text(ends);
    list.push_back(std::move(object));
  }
  call->respond_json(json::serialize(json::object{{"models", std::move(list)}}));
}

void show(const std::shared_ptr<Call>& call) {
  const json::object body = parse_body(call->request.body);
  call->with_model(ollama_model_name(Fields(body)), [call](const std::shared_ptr<Served>& served) {
    const models::Model& model = served->model();
    const models::Hyperparameters& hyper = model.hyperparameters();
    json::object object;
    object["details"] = details_of({served->entry, Models::State::ready, "", served});
    object["template"] =
        served->chat_format ? text::valid_utf8(model.chat_template()->source()) : std::string();
    object["model_info"] = json::object{{"general.architecture", hyper.architecture},
                                        {"general.parameter_count", model.parameters()},
                                        {hyper.architecture + ".context_length", hyper.trained_context},
                                        {hyper.architecture + ".embedding_length", hyper.embedding},
                                        {hyper.architecture + ".block_count", hyper.layers}};
    json::array abilities{"completion"};
    if (served->chat_format && served->chat_format->capabilities().tools) abilities.push_back("tools");
    if (served->chat_format && !served->chat_format->capabilities().thinking_switch.empty())
      abilities.push_back("thinking");
    object["capabilities"] = std::move(abilities);
    call->respond_json(json::serialize(object));
  });
}

void version(const std::shared_ptr<Call>& call) {
  call->respond_json(json::serialize(json::object{{"version", call->context->version}}));
}

class Ollama final : public Dialect {
 public:
  std::vector<Route> routes() const override {
    return {{"POST", "/api/chat", chat},          {"POST", "/api/generate", generate},
            {"POST", "/api/embed", ollama_embed}, {"POST", "/api/embeddings", ollama_embeddings},
            {"GET", "/api/tags", tags, true},     {"POST", "/api/show", show},
            {"GET", "/api/ps", ps, true},         {"GET", "/api/version", version, true}};
  }
  http::Response error(const RequestError& error) const override {
    http::Response response;
    response.status = error.status();
    response.body = json::serialize(error_body(error));
    return response;
  }
  bool claims(std::string_view path) const override { return path.rfind("/api/", 0) == 0; }
};

}  // namespace

std::unique_ptr<Dialect> make_ollama_dialect() { return std::make_unique<Ollama>(); }

}  // namespace quipu::server
