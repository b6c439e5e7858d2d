// POST /v1/completions
#include <boost/json.hpp>

#include "server/chat_prompt.hpp"
#include "server/dialects/openai.hpp"
#include "server/fill_in.hpp"
#include "server/generation_fields.hpp"
#include "server/prompt_fields.hpp"
#include "text/unicode.hpp"

namespace quipu::server::openai {

namespace json = boost::json;

namespace {

constexpr std::int64_t kMostLogprobs = 20;

/// Tokens that are no whole characters are spelt "bytes:\xe2\x80", as OpenAI does: then no two are alike.
std::string token_name(const std::string& bytes) {
  if (text::valid_prefix(bytes) == bytes.size()) return bytes;
  std::string name = "bytes:";
  for (const char c : bytes)
    name += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  return name;
}

std::int64_t characters(std::string_view text) {
  std::int64_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += text::decode_utf8(text, at).length) ++count;
  return count;
}

/// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; offsets count characters from `offset` on.
class Logprobs {
 public:
  explicit Logprobs(std::int64_t offset) : offset_(offset) {}
  void add(const TokenLogprob& token, bool known = true) {
    tokens_.push_back(json::value(token_name(token.bytes)));
    values_.push_back(known ? json::value(token.log_probability) : json::value(nullptr));
    json::object top;
    for (const TokenChoice& other : token.top) top[token_name(other.bytes)] = other.log_probability;
    // The token itself is always among them.
    if (known) top[token_name(token.bytes)] = token.log_probability;
    top_.push_back(known ? json::value(std::move(top)) : json::value(nullptr));
    offsets_.push_back(offset_);
    offset_ += characters(token.bytes);
  }
  std::int64_t offset() const { return offset_; }
  json::object take() {
    json::object object;
    object["tokens"] = std::move(tokens_);
    object["token_logprobs"] = std::move(values_);
    object["top_logprobs"] = std::move(top_);
    object["text_offset"] = std::move(offsets_);
    return object;
  }

 private:
  std::int64_t offset_;
  json::array tokens_, values_, top_, offsets_;
};

class CompletionFormat final : public AnswerFormat {
 public:
  struct Settings {
    std::string model;
    bool logprobs = false, include_usage = false;
    std::vector<std::string> echo;  ///< per prompt, when it is to be repeated
    std::size_t n = 1, choices = 1;
  };
  explicit CompletionFormat(Settings settings)
      : s_(std::move(settings)), id_(make_id("cmpl-")), created_(unix_time()), states_(s_.choices) {}

  std::string whole(const std::vector<Outcome>& outcomes, const TotalUsage& usage) override {
    json::array choices;
    for (const Outcome& outcome : outcomes) {
      json::value logprobs = nullptr;
      if (s_.logprobs) {
        Logprobs list(0);
        const Outcome& prompt = outcomes[outcome.choice - outcome.choice % s_.n];
        for (std::size_t i = 0; i < prompt.prompt_logprobs.size(); ++i)
          list.add(prompt.prompt_logprobs[i], i > 0);
        for (const TokenLogprob& token : outcome.logprobs) list.add(token);
        // Who scores prompts counts on one entry behind them, whatever was drawn.
        if (!s_.echo.empty() && outcome.end) list.add(*outcome.end);
        logprobs = list.take();
      }
      choices.push_back(choice(outcome.choice, echo(outcome.choice) + outcome.text, std::move(logprobs),
                               json::value(finish_reason(outcome.stop))));
    }
    json::object object = frame(std::move(choices));
    object["usage"] = usage_object(usage);
    return json::serialize(object);
  }

  std::string piece(const Piece& piece) override {
    State& state = states_[piece.choice];
    json::value logprobs = nullptr;
    if (s_.logprobs && !piece.logprobs.empty()) {
      Logprobs list(state.offset);
      for (const TokenLogprob& token : piece.logprobs) list.add(token);
      state.offset = list.offset();
      logprobs = list.take();
    }
    return opening(piece.choice) + chunk(piece.choice, piece.text, std::move(logprobs), nullptr);
  }
  std::string choice_end(const Outcome& outcome) override {
    return opening(outcome.choice) +
           chunk(outcome.choice, "", nullptr, json::value(finish_reason(outcome.stop)));
  }
  std::string end(const TotalUsage& usage) override {
    std::string last;
    if (s_.include_usage) {
      json::object object = frame({});
      object["usage"] = usage_object(usage);
      last = event(object);
    }
    return last + "data: [DONE]\n\n";
  }
  std::string failed(const RequestError& error) override { return event(error_object(error)); }

 private:
  struct State {
    bool begun = false;
    std::int64_t offset = 0;
  };
  std::string echo(std::size_t choice) const { return s_.echo.empty() ? "" : s_.echo[choice / s_.n]; }
  std::string opening(std::size_t index) {
    State& state = states_[index];
    if (std::exchange(state.begun, true) || s_.echo.empty()) return {};
    return chunk(index, echo(index), nullptr, nullptr);
  }
  static json::object choice(std::size_t index, std::string text, json::value logprobs, json::value finish) {
    json::object object;
    object["text"] = std::move(text);
    object["index"] = index;
    object["logprobs"] = std::move(logprobs);
    object["finish_reason"] = std::move(finish);
    return object;
  }
  json::object frame(json::array choices) const {
    json::object object;
    object["id"] = id_;
    object["object"] = "text_completion";
    object["created"] = created_;
    object["model"] = s_.model;
    object["system_fingerprint"] = "quipu";
    object["choices"] = std::move(choices);
    return object;
  }
  std::string chunk(std::size_t index, std::string text, json::value logprobs, json::value finish) const {
    json::object object =
        frame(json::array{choice(index, std::move(text), std::move(logprobs), std::move(finish))});
    if (s_.include_usage) object["usage"] = nullptr;
    return event(object);
  }

  Settings s_;
  std::string id_;
  std::int64_t created_;
  std::vector<State> states_;
};

/// The prompt of a request with a suffix; texts only.
Prompt suffixed(const Fields& fields, const std::string& suffix, const Served& served) {
  const auto tokens = fill_in_tokens(served.model());
  if (!tokens) bad_field("suffix", "\"suffix\" is not supported: the model has no fill-in-the-middle tokens");
  return fill_in_prompt(*tokens, {fields.text("prompt").value_or(""), suffix, "", {}},
                        served.model().tokenizer());
}

}  // namespace

void completions(const std::shared_ptr<Call>& call) {
  auto body = std::make_shared<const json::object>(parse_body(call->request.body));
  const std::string model = Fields(*body).text("model").value_or("");
  call->with_model(model, [call, body](const std::shared_ptr<Served>& served) {
    const Fields fields(*body);
    GenerationRequest request;
    request.options = read_generation_fields(fields, *served);
    read_placement(fields, request);
    request.options.max_tokens = read_max_tokens(fields, {"max_tokens"}, 16);  // the dialect's default
    request.options.constraint = read_constraint(fields, *served);
    request.n = fields.integer("n", 1, kMostChoices).value_or(1);
    if (const auto best = fields.integer("best_of"); best && *best != request.n)
      bad_field("best_of", "\"best_of\" is {}, supported is the value of \"n\" ({})", *best, request.n);
    request.stream = fields.boolean("stream").value_or(false);
    if (const auto count = fields.integer("logprobs", 0, kMostLogprobs))
      request.logprobs = static_cast<std::size_t>(*count);
    std::vector<Prompt> prompts = read_prompts(fields, "prompt", served->model().tokenizer());
    if (const std::string suffix = fields.text("suffix").value_or(""); !suffix.empty())
      prompts = {suffixed(fields, suffix, *served)};
    const bool echo = fields.boolean("echo").value_or(false);
    request.want_prompt_logprobs = echo && !request.stream;
    CompletionFormat::Settings settings;
    settings.model = served->entry.id;
    settings.logprobs = request.logprobs.has_value();
    settings.include_usage = read_include_usage(fields);
    for (Prompt& prompt : prompts) {
      if (echo) settings.echo.push_back(std::move(prompt.text));
      request.prompts.push_back(std::move(prompt.tokens));
    }
    if (request.prompts.size() * static_cast<std::size_t>(request.n) > 1024)
      bad_field("prompt", "{} prompts times {} choices are more than 1024 answers", request.prompts.size(),
                request.n);
    settings.n = static_cast<std::size_t>(request.n);
    settings.choices = request.choices();
    call->generate(served, std::move(request), std::make_unique<CompletionFormat>(std::move(settings)));
  });
}

}  // namespace quipu::server::openai
