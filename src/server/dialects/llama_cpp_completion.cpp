// POST /completion, /infill
#include <boost/json.hpp>

#include "server/chat_prompt.hpp"
#include "server/dialects/llama_cpp.hpp"
#include "server/fill_in.hpp"
#include "server/generation_fields.hpp"
#include "server/prompt_fields.hpp"
#include "text/unicode.hpp"

namespace quipu::server::llama_cpp {

namespace json = boost::json;

namespace {

constexpr std::int64_t kMostProbs = 1000;

json::object token_object(const TokenChoice& token) {
  json::object object;
  object["id"] = token.token;
  object["token"] = text::valid_utf8(token.bytes);
  json::array bytes;
  for (const char c : token.bytes) bytes.push_back(static_cast<std::int64_t>(static_cast<unsigned char>(c)));
  object["bytes"] = std::move(bytes);
  object["logprob"] = token.log_probability;
  return object;
}

json::array probabilities(const std::vector<TokenLogprob>& tokens) {
  json::array list;
  for (const TokenLogprob& token : tokens) {
    json::object object = token_object(token);
    json::array top;
    for (const TokenChoice& other : token.top) top.push_back(token_object(other));
    object["top_logprobs"] = std::move(top);
    list.push_back(std::move(object));
  }
  return list;
}

std::string_view stop_type(engine::StopReason reason) {
  switch (reason) {
    case engine::StopReason::end_of_generation:
      return "eos";
    case engine::StopReason::stop_string:
      return "word";
    case engine::StopReason::max_tokens:
    case engine::StopReason::context_full:
      return "limit";
    default:
      return "none";
  }
}

json::object timings(const engine::Usage& usage) {
  const std::int64_t computed = usage.prompt_tokens - usage.cached_tokens;
  const auto rate = [](std::int64_t tokens, double ms) {
    return ms > 0 ? 1000.0 * static_cast<double>(tokens) / ms : 0.0;
  };
  json::object object;
  object["cache_n"] = usage.cached_tokens;
  object["prompt_n"] = computed;
  object["prompt_ms"] = usage.prompt_ms;
  object["prompt_per_second"] = rate(computed, usage.prompt_ms);
  object["predicted_n"] = usage.completion_tokens;
  object["predicted_ms"] = usage.generation_ms;
  object["predicted_per_second"] = rate(usage.completion_tokens, usage.generation_ms);
  return object;
}

class Format final : public AnswerFormat {
 public:
  struct Settings {
    std::string model;
    std::vector<std::string> prompts;
    json::object settings;
    bool return_tokens = false, probabilities = false;
    std::size_t n = 1;
    std::int64_t slot = -1;
  };
  explicit Format(Settings settings) : s_(std::move(settings)) {}

  std::string whole(const std::vector<Outcome>& outcomes, const TotalUsage&) override {
    if (outcomes.size() == 1) return json::serialize(last(outcomes.front(), true));
    json::array list;
    for (const Outcome& outcome : outcomes) list.push_back(last(outcome, true));
    return json::serialize(list);
  }
  std::string piece(const Piece& piece) override {
    json::object object;
    object["index"] = piece.choice;
    object["content"] = piece.text;
    object["tokens"] = json::array(piece.tokens.begin(), piece.tokens.end());
    object["stop"] = false;
    if (s_.probabilities) object["completion_probabilities"] = probabilities(piece.logprobs);
    return event(object);
  }
  std::string choice_end(const Outcome& outcome) override { return event(last(outcome, false)); }
  std::string end(const TotalUsage&) override { return {}; }
  std::string failed(const RequestError& error) override { return event(error_object(error)); }

 private:
  static std::string event(const json::object& object) { return "data: " + json::serialize(object) + "\n\n"; }

  json::object last(const Outcome& outcome, bool whole) const {
    json::object object;
    object["index"] = outcome.choice;
    object["id_slot"] = s_.slot;
    object["content"] = whole ? outcome.text : std::string();
    object["tokens"] =
        whole && s_.return_tokens ? json::array(outcome.tokens.begin(), outcome.tokens.end()) : json::array();
    object["stop"] = true;
    object["model"] = s_.model;
    object["tokens_predicted"] = outcome.usage.completion_tokens;
    object["tokens_evaluated"] = outcome.usage.prompt_tokens;
    object["tokens_cached"] = outcome.usage.cached_tokens;
    object["generation_settings"] = s_.settings;
    object["prompt"] = s_.prompts[outcome.choice / s_.n];
    object["has_new_line"] = outcome.text.find('\n') != std::string::npos;
    object["truncated"] = false;
    object["stop_type"] = stop_type(outcome.stop);
    object["stopping_word"] = outcome.stop_text;
    if (whole && s_.probabilities) object["completion_probabilities"] = probabilities(outcome.logprobs);
    object["timings"] = timings(outcome.usage);
    return object;
  }
  Settings s_;
};

void refuse_what_cannot_be_obeyed(const Fields& fields) {
  if (fields.boolean("post_sampling_probs").value_or(false))
    bad_field("post_sampling_probs",
              "\"post_sampling_probs\" is not supported: probabilities are the model's");
}

void answer(const std::shared_ptr<Call>& call, const Fields& fields, const std::shared_ptr<Served>& served,
            std::vector<Prompt> prompts) {
  refuse_what_cannot_be_obeyed(fields);
  GenerationRequest request;
  request.options = read_generation_fields(fields, *served);
  read_placement(fields, request);
  for (const std::string_view name : {"n_predict", "max_tokens"}) {
    if (const auto most = fields.integer(name, -1)) {
      request.options.max_tokens = *most;
      break;
    }
  }
  if (const auto keep = fields.integer("n_keep", -1); keep && request.options.context_shift)
    request.options.keep = *keep;
  request.options.constraint = read_constraint(fields, *served);
  request.n = fields.integer("n", 1, 128).value_or(1);
  request.stream = fields.boolean("stream").value_or(false);
  if (const auto count = fields.integer("n_probs", 0, kMostProbs); count && *count > 0)
    request.logprobs = static_cast<std::size_t>(*count);
  Format::Settings settings;
  settings.model = served->entry.id;
  settings.n = static_cast<std::size_t>(request.n);
  settings.slot = request.slot;
  settings.return_tokens = fields.boolean("return_tokens").value_or(false);
  settings.probabilities = request.logprobs.has_value();
  settings.settings = settings_object(request.options);
  for (Prompt& prompt : prompts) {
    settings.prompts.push_back(text::valid_utf8(prompt.text));
    request.prompts.push_back(std::move(prompt.tokens));
  }
  call->generate(served, std::move(request), std::make_unique<Format>(std::move(settings)));
}

FillIn read_fill_in(const Fields& fields) {
  FillIn fill_in;
  fill_in.prefix = fields.text("input_prefix").value_or("");
  fill_in.suffix = fields.text("input_suffix").value_or("");
  fill_in.begun = fields.text("prompt").value_or("");
  if (!fields.has("input_prefix") && !fields.has("input_suffix"))
    bad_field("input_prefix", "\"input_prefix\" and \"input_suffix\" are missing, expected the text around");
  const json::array* files = fields.array("input_extra");
  for (std::size_t i = 0; files != nullptr && i < files->size(); ++i) {
    const std::string path = fmt::format("input_extra[{}]", i);
    if (!(*files)[i].is_object())
      bad_field(path, "\"{}\" is {}, expected an object", path, kind_of((*files)[i]));
    const Fields file((*files)[i].get_object(), path);
    const auto text = file.text("text");
    if (!text) bad_field(file.path("text"), "\"{}\" is missing", file.path("text"));
    fill_in.files.push_back({file.text("filename").value_or("tmp"), *text});
  }
  return fill_in;
}

}  // namespace

void completion(const std::shared_ptr<Call>& call) {
  with_body(call, [call](const Fields& fields, const std::shared_ptr<Served>& served) {
    answer(call, fields, served, read_prompts(fields, "prompt", served->model().tokenizer()));
  });
}

void infill(const std::shared_ptr<Call>& call) {
  with_body(call, [call](const Fields& fields, const std::shared_ptr<Served>& served) {
    const FillIn fill_in = read_fill_in(fields);
    const auto tokens = fill_in_tokens(served->model());
    if (!tokens) throw RequestError(ErrorKind::unsupported, "the model has no fill-in-the-middle tokens");
    answer(call, fields, served, {fill_in_prompt(*tokens, fill_in, served->model().tokenizer())});
  });
}

}  // namespace quipu::server::llama_cpp
