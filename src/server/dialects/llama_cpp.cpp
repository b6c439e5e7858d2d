#include "server/dialects/llama_cpp.hpp"

#include <boost/json.hpp>
#include <cmath>

#include "core/error.hpp"
#include "server/chat_prompt.hpp"
#include "server/dialects/dialects.hpp"
#include "server/dialects/embeddings.hpp"
#include "server/generation_fields.hpp"
#include "server/metrics.hpp"
#include "text/unicode.hpp"

namespace quipu::server {

namespace json = boost::json;

namespace llama_cpp {

namespace {

std::string_view type_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::context_overflow:
      return "exceed_context_size_error";
    case ErrorKind::unauthorized:
      return "authentication_error";
    case ErrorKind::forbidden:
      return "permission_error";
    case ErrorKind::not_found:
    case ErrorKind::unknown_model:
      return "not_found_error";
    case ErrorKind::unsupported:
      return "not_supported_error";
    case ErrorKind::busy:
    case ErrorKind::unavailable:
      return "unavailable_error";
    case ErrorKind::internal:
      return "server_error";
    default:
      return "invalid_request_error";
  }
}

std::string token_text(const text::Tokenizer& tokenizer, const std::optional<text::Token>& token) {
  return token ? text::valid_utf8(tokenizer.text(*token)) : std::string();
}

}  // namespace

void with_body(const std::shared_ptr<Call>& call,
               std::function<void(const Fields&, const std::shared_ptr<Served>&)> then) {
  auto body = std::make_shared<const json::object>(
      call->request.body.empty() ? json::object() : parse_body(call->request.body));
  const std::string model =
      Fields(*body).text("model").value_or(call->request.parameter("model").value_or(""));
  call->with_model(model, [body, then = std::move(then)](const std::shared_ptr<Served>& served) {
    then(Fields(*body), served);
  });
}

json::object error_object(const RequestError& error) {
  json::object inner;
  inner["code"] = error.status();
  inner["message"] = error.message();
  inner["type"] = type_of(error.kind());
  if (error.kind() == ErrorKind::context_overflow && error.context > 0) {
    inner["n_prompt_tokens"] = error.prompt_tokens;
    inner["n_ctx"] = error.context;
  }
  json::object object;
  object["error"] = std::move(inner);
  return object;
}

json::object settings_object(const engine::Request& request) {
  const engine::SamplingParams& p = request.sampling;
  json::object object;
  object["n_predict"] = request.max_tokens;
  object["seed"] = p.seed;
  object["temperature"] = p.temperature;
  object["dynatemp_range"] = p.dynatemp_range;
  object["dynatemp_exponent"] = p.dynatemp_exponent;
  object["top_k"] = p.top_k;
  object["top_p"] = p.top_p;
  object["min_p"] = p.min_p;
  object["top_n_sigma"] = p.top_n_sigma;
  object["xtc_probability"] = p.xtc_probability;
  object["xtc_threshold"] = p.xtc_threshold;
  object["typical_p"] = p.typical_p;
  object["repeat_last_n"] = p.repeat_last_n;
  object["repeat_penalty"] = p.repeat_penalty;
  object["presence_penalty"] = p.presence_penalty;
  object["frequency_penalty"] = p.frequency_penalty;
  object["dry_multiplier"] = p.dry_multiplier;
  object["dry_base"] = p.dry_base;
  object["dry_allowed_length"] = p.dry_allowed_length;
  object["dry_penalty_last_n"] = p.dry_penalty_last_n;
  object["mirostat"] = p.mirostat;
  object["mirostat_tau"] = p.mirostat_tau;
  object["mirostat_eta"] = p.mirostat_eta;
  object["stop"] = json::array(request.stop.begin(), request.stop.end());
  object["ignore_eos"] = request.ignore_eos;
  json::array bias;
  for (const auto& [token, value] : p.logit_bias)
    bias.push_back(json::array{token, std::isinf(value) ? json::value(false) : json::value(value)});
  object["logit_bias"] = std::move(bias);
  object["samplers"] = json::array(p.samplers.begin(), p.samplers.end());
  object["min_keep"] = p.min_keep;
  return object;
}

void tokenize(const std::shared_ptr<Call>& call) {
  with_body(call, [call](const Fields& fields, const std::shared_ptr<Served>& served) {
    // Under vLLM's names as well: some clients of its kind count tokens here.
    const auto prompt = fields.text("prompt");
    const auto content = prompt ? prompt : fields.text("content");
    if (!content) bad_field("content", "\"content\" is missing, expected the text");
    const text::Tokenizer& tokenizer = served->model().tokenizer();
    const bool special = prompt ? fields.boolean("add_special_tokens").value_or(true)
                                : fields.boolean("add_special").value_or(false);
    const auto tokens = tokenizer.encode(*content, {special, fields.boolean("parse_special").value_or(true)});
    const bool pieces = fields.boolean("with_pieces").value_or(false);
    json::array list;
    for (const text::Token token : tokens) {
      if (!pieces) {
        list.push_back(token);
        continue;
      }
      const std::string bytes = tokenizer.piece(token, true);
      json::value piece = json::value(bytes);
      if (text::valid_prefix(bytes) < bytes.size()) {
        json::array numbers;
        for (const char c : bytes)
          numbers.push_back(static_cast<std::int64_t>(static_cast<unsigned char>(c)));
        piece = std::move(numbers);
      }
      list.push_back(json::object{{"id", token}, {"piece", std::move(piece)}});
    }
    json::object object;
    object["count"] = tokens.size();
    object["max_model_len"] = served->service->memory().context;
    object["tokens"] = std::move(list);
    call->respond_json(json::serialize(object));
  });
}

void detokenize(const std::shared_ptr<Call>& call) {
  with_body(call, [call](const Fields& fields, const std::shared_ptr<Served>& served) {
    const json::array* list = fields.array("tokens");
    if (list == nullptr) bad_field("tokens", "\"tokens\" is missing, expected a list of token ids");
    const text::Tokenizer& tokenizer = served->model().tokenizer();
    std::vector<text::Token> tokens;
    for (const json::value& item : *list) {
      const auto id = as_integer(item);
      if (!id || *id < 0 || static_cast<std::size_t>(*id) >= tokenizer.size())
        bad_field("tokens", "\"tokens\" holds {}, expected ids from 0 to {}",
                  printable(json::serialize(item), 40), tokenizer.size() - 1);
      tokens.push_back(static_cast<text::Token>(*id));
    }
    json::object object;
    object["content"] = text::valid_utf8(tokenizer.decode(tokens, true));
    object["prompt"] = object["content"];
    call->respond_json(json::serialize(object));
  });
}

void apply_template(const std::shared_ptr<Call>& call) {
  with_body(call, [call](const Fields& fields, const std::shared_ptr<Served>& served) {
    json::object object;
    object["prompt"] = text::valid_utf8(make_prompt(*served, read_conversation(fields)).rendered.text);
    call->respond_json(json::serialize(object));
  });
}

/// vLLM's: what clients need to know that count tokens at /tokenize.
void tokenizer_info(const std::shared_ptr<Call>& call) {
  with_body(call, [call](const Fields&, const std::shared_ptr<Served>& served) {
    const text::Tokenizer& tokenizer = served->model().tokenizer();
    json::object object{{"tokenizer_class", tokenizer.model}};
    object["bos_token"] = tokenizer.bos ? json::value(token_text(tokenizer, tokenizer.bos)) : nullptr;
    object["eos_token"] = tokenizer.eos ? json::value(token_text(tokenizer, tokenizer.eos)) : nullptr;
    object["vocab_size"] = tokenizer.size();
    object["model_max_length"] = served->service->memory().context;
    object["chat_template"] = served->chat_format != nullptr
                                  ? json::value(text::valid_utf8(served->model().chat_template()->source()))
                                  : nullptr;
    call->respond_json(json::serialize(object));
  });
}

void props(const std::shared_ptr<Call>& call) {
  with_body(call, [call](const Fields&, const std::shared_ptr<Served>& served) {
    const models::Model& model = served->model();
    const EngineService& service = *served->service;
    const text::Tokenizer& tokenizer = model.tokenizer();
    json::object object;
    object["default_generation_settings"] =
        json::object{{"params", settings_object(served->defaults)}, {"n_ctx", service.memory().context}};
    object["total_slots"] = service.places();
    object["model_alias"] = served->entry.id;
    object["model_path"] = served->entry.path.string();
    object["model_description"] = model.description();
    object["modalities"] = json::object{{"vision", false}, {"audio", false}};
    const gguf::Value* source = model.file().metadata().find("tokenizer.chat_template");
    const std::string* text = source != nullptr ? std::get_if<std::string>(&source->data) : nullptr;
    object["chat_template"] = text != nullptr ? text::valid_utf8(*text) : std::string();
    object["bos_token"] = token_text(tokenizer, tokenizer.bos);
    object["eos_token"] = token_text(tokenizer, tokenizer.eos);
    object["build_info"] = "quipu " + call->context->version;
    const engine::MemoryReport& memory = service.memory();
    const engine::EngineStats stats = service.stats();
    const std::uint64_t page_bytes = stats.pages > 0 ? memory.kv / stats.pages : 0;
    object["memory"] = json::object{{"weights", memory.weights},
                                    {"kv", memory.kv},
                                    {"kv_free", stats.free_pages * page_bytes},
                                    {"kv_prefix_cache", stats.tree_pages * page_bytes},
                                    {"disk_cache", stats.stored.bytes},
                                    {"scratch", memory.scratch},
                                    {"budget", memory.budget},
                                    {"context", memory.context},
                                    {"context_reason", memory.context_reason}};
    call->respond_json(json::serialize(object));
  });
}

void health(const std::shared_ptr<Call>& call) {
  const ServerContext& context = *call->context;
  const auto unavailable = [&](std::string_view message) {
    const RequestError error(ErrorKind::unavailable, std::string(message));
    call->respond_json(json::serialize(error_object(error)), 503);
  };
  if (context.draining()) return unavailable("the server is shutting down");
  const auto models = context.models->list();
  for (const Models::Listed& listed : models) {
    if (listed.served && listed.served->service->step_age() > context.stall)
      return unavailable("the engine does not answer: a step takes too long");
  }
  // With several models, each is loaded when it is asked for.
  if (models.size() == 1 && models.front().state == Models::State::failed)
    return unavailable("the model could not be loaded: " + models.front().error);
  if (models.size() == 1 && models.front().state == Models::State::loading)
    return unavailable("loading the model");
  call->respond_json(R"({"status":"ok"})");
}

void metrics(const std::shared_ptr<Call>& call) {
  http::Response response;
  response.content_type = MetricsText::kContentType;
  response.body = call->context->metrics_text();
  call->respond(std::move(response));
}

}  // namespace llama_cpp

namespace {

class LlamaCpp final : public Dialect {
 public:
  std::vector<Route> routes() const override {
    using namespace llama_cpp;
    return {
        {"GET", "/health", health, true, false},
        {"GET", "/v1/health", health, true, false},
        {"GET", "/metrics", metrics, true},
        {"POST", "/completion", completion},
        {"POST", "/completions", completion},
        {"POST", "/infill", infill},
        {"POST", "/embedding", llama_cpp_embeddings},
        {"POST", "/embeddings", llama_cpp_embeddings},
        {"POST", "/rerank", rerank},
        {"POST", "/reranking", rerank},
        {"POST", "/tokenize", tokenize},
        {"POST", "/detokenize", detokenize},
        {"GET", "/tokenizer_info", tokenizer_info},
        {"POST", "/apply-template", apply_template},
        {"GET", "/props", props},
        {"GET", "/slots", slots, true},
        {"POST", "/slots/*", slot_action},
        {"GET", "/lora-adapters", adapters},
        {"POST", "/lora-adapters", set_adapters},
    };
  }

  http::Response error(const RequestError& error) const override {
    http::Response response;
    response.status = error.status();
    response.body = json::serialize(llama_cpp::error_object(error));
    return response;
  }

  bool claims(std::string_view path) const override {
    for (const Route& route : routes()) {
      if (route.path == path) return true;
    }
    return path.rfind("/slots/", 0) == 0;
  }
};

}  // namespace

std::unique_ptr<Dialect> make_llama_cpp_dialect() { return std::make_unique<LlamaCpp>(); }

}  // namespace quipu::server
