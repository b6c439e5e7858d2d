#include "server/dialects/openai.hpp"

#include <boost/json.hpp>
#include <ctime>
#include <random>

#include "server/dialects/dialects.hpp"
#include "server/dialects/embeddings.hpp"

namespace quipu::server {

namespace json = boost::json;

namespace openai {

namespace {

std::string_view type_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::unauthorized:
      return "authentication_error";
    case ErrorKind::forbidden:
      return "permission_error";
    case ErrorKind::busy:
      return "rate_limit_error";
    case ErrorKind::unavailable:
    case ErrorKind::internal:
      return "server_error";
    default:
      return "invalid_request_error";
  }
}

json::value code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::context_overflow:
      return "context_length_exceeded";
    case ErrorKind::unauthorized:
      return "invalid_api_key";
    case ErrorKind::forbidden:
      return "origin_not_allowed";
    case ErrorKind::unknown_model:
      return "model_not_found";
    case ErrorKind::not_found:
      return "unknown_url";
    case ErrorKind::wrong_method:
      return "method_not_allowed";
    case ErrorKind::busy:
      return "rate_limit_exceeded";
    case ErrorKind::unsupported:
      return "unsupported";
    case ErrorKind::unavailable:
      return "server_unavailable";
    default:
      return nullptr;
  }
}

}  // namespace

json::object error_object(const RequestError& error) {
  std::string message = error.message();
  // Clients look for both counts in this sentence.
  if (error.kind() == ErrorKind::context_overflow && error.context > 0)
    message = fmt::format(
        "This model's maximum context length is {} tokens. However, your messages resulted in {} tokens. "
        "({})",
        error.context, error.prompt_tokens, error.message());
  json::object inner;
  inner["message"] = message;
  inner["type"] = type_of(error.kind());
  inner["param"] = error.parameter().empty() ? json::value(nullptr) : json::value(error.parameter());
  inner["code"] = code_of(error.kind());
  if (error.kind() == ErrorKind::context_overflow && error.context > 0) {
    inner["n_prompt_tokens"] = error.prompt_tokens;
    inner["n_ctx"] = error.context;
  }
  json::object object;
  object["error"] = std::move(inner);
  return object;
}

std::string event(const json::object& object) { return "data: " + json::serialize(object) + "\n\n"; }

std::string make_id(std::string_view prefix) {
  static constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id(prefix);
  for (int i = 0; i < 24; ++i) id += kLetters[random() % kLetters.size()];
  return id;
}

std::int64_t unix_time() { return static_cast<std::int64_t>(std::time(nullptr)); }

std::string_view finish_reason(engine::StopReason reason) {
  const bool length = reason == engine::StopReason::max_tokens || reason == engine::StopReason::context_full;
  return length ? "length" : "stop";
}

json::object usage_object(const TotalUsage& usage) {
  json::object object;
  object["prompt_tokens"] = usage.prompt_tokens;
  object["completion_tokens"] = usage.completion_tokens;
  object["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  object["prompt_tokens_details"] = json::object{{"cached_tokens", usage.cached_tokens}};
  return object;
}

std::int64_t read_max_tokens(const Fields& fields, std::initializer_list<std::string_view> names,
                             std::int64_t otherwise) {
  for (const std::string_view name : names) {
    if (const auto value = fields.integer(name, -1)) return *value;
  }
  return otherwise;
}

bool read_include_usage(const Fields& fields) {
  const json::object* options = fields.object("stream_options");
  if (options == nullptr) return false;
  return Fields(*options, "stream_options").boolean("include_usage").value_or(false);
}

namespace {

std::string_view state_name(Models::State state) {
  switch (state) {
    case Models::State::unloaded:
      return "unloaded";
    case Models::State::loading:
      return "loading";
    case Models::State::ready:
      return "loaded";
    case Models::State::failed:
      return "failed";
  }
  return "failed";
}

json::object model_object(const Models::Listed& listed) {
  json::object object;
  object["id"] = listed.entry.id;
  object["object"] = "model";
  object["created"] = listed.served ? listed.served->loaded_at : unix_time();
  object["owned_by"] = "quipu";
  json::object status{{"value", state_name(listed.state)}};
  if (listed.state == Models::State::failed) status["error"] = listed.error;
  object["status"] = std::move(status);
  if (listed.served) {
    const models::Model& model = listed.served->model();
    object["meta"] = json::object{
        {"description", model.description()},
        {"n_vocab", model.tokenizer().size()},
        {"n_ctx", listed.served->service->memory().context},
        {"n_ctx_train", model.hyperparameters().trained_context},
        {"n_embd", model.hyperparameters().embedding},
        {"n_params", model.parameters()},
        {"size", model.weight_bytes()},
    };
  }
  return object;
}

}  // namespace

void list_models(const std::shared_ptr<Call>& call) {
  json::array data;
  for (const Models::Listed& listed : call->context->models->refreshed_list())
    data.push_back(model_object(listed));
  json::object object;
  object["object"] = "list";
  object["data"] = std::move(data);
  call->respond_json(json::serialize(object));
}

void show_model(const std::shared_ptr<Call>& call) {
  for (const Models::Listed& listed : call->context->models->refreshed_list()) {
    if (listed.entry.id == call->tail) return call->respond_json(json::serialize(model_object(listed)));
  }
  throw RequestError(ErrorKind::unknown_model,
                     fmt::format("the model \"{}\" does not exist", printable(call->tail, 100)), "model");
}

}  // namespace openai

namespace {

class OpenAi final : public Dialect {
 public:
  std::vector<Route> routes() const override {
    std::vector<Route> list;
    // Clients differ in whether their base address ends in /v1.
    for (const std::string prefix : {"/v1", ""}) {
      list.push_back({"POST", prefix + "/chat/completions", openai::chat_completions});
      list.push_back({"GET", prefix + "/models", openai::list_models, true});
    }
    list.push_back({"POST", "/v1/completions", openai::completions});
    list.push_back({"POST", "/v1/responses", openai::responses});
    list.push_back({"POST", "/v1/embeddings", openai_embeddings});
    for (const char* path : {"/v1/rerank", "/v1/reranking"}) list.push_back({"POST", path, rerank});
    list.push_back({"GET", "/v1/models/*", openai::show_model, true});
    return list;
  }

  http::Response error(const RequestError& error) const override {
    http::Response response;
    response.status = error.status();
    response.body = json::serialize(openai::error_object(error));
    return response;
  }

  bool claims(std::string_view path) const override { return path.rfind("/v1/", 0) == 0; }
};

}  // namespace

std::unique_ptr<Dialect> make_openai_dialect() { return std::make_unique<OpenAi>(); }

}  // namespace quipu::server
