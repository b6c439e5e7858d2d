#include "server/generation.hpp"

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>

#include "core/log.hpp"
#include "engine/sampling/logprobs.hpp"

namespace quipu::server {

namespace {

using Clock = std::chrono::steady_clock;

struct TokenCame {
  std::size_t choice;
  text::Token token;
  std::string text;
  std::size_t settled;
  std::optional<TokenLogprob> logprob;
};
struct ChoiceDone {
  std::size_t choice;
  engine::Result result;
};
struct Tick {
  Clock::time_point now;
  std::chrono::milliseconds interval;
};
using Event = std::variant<TokenCame, ChoiceDone, Tick>;

class RunningGeneration final : public Generation, public std::enable_shared_from_this<RunningGeneration> {
 public:
  RunningGeneration(GenerationSetup setup, Workers& workers)
      : s_(std::move(setup)), workers_(workers), choices_(s_.request.choices()) {}

  void start();
  void tick(Clock::time_point now, std::chrono::milliseconds interval) override {
    if (s_.request.stream) push(Tick{now, interval});
  }
  void cancel() override;

 private:
  struct Choice {
    std::vector<text::Token> tokens;     // generated so far, perhaps with the one that ended it
    std::vector<TokenLogprob> logprobs;  // of tokens, when asked for
    std::size_t sent = 0;                // tokens that were in a piece
    std::optional<text::OutputParser> parser;
    text::ParsedOutput parsed;
    std::vector<TokenLogprob> prompt_logprobs;  // the engine's thread only, until the choice is done
    std::optional<Outcome> outcome;
  };

  const text::Tokenizer& tokenizer() const { return s_.served->model().tokenizer(); }
  Job make_job(std::size_t choice);
  TokenChoice describe(text::Token token, float log_probability) const;
  TokenLogprob describe(text::Token token, float log_probability,
                        const std::vector<engine::TokenProbability>& top) const;
  void push(Event event);
  void drain();
  void handle(TokenCame& event);
  void handle(ChoiceDone& event);
  void handle(Tick& event);
  std::vector<text::OutputEvent> parse(Choice& choice, std::string_view text, bool last);
  void send(std::string bytes);
  void fail(const RequestError& error);
  void complete();
  TotalUsage usage() const;
  void summarize();

  GenerationSetup s_;
  Workers& workers_;
  std::mutex mutex_;
  std::deque<Event> events_;  // guarded
  bool draining_ = false;     // guarded: some worker handles events
  std::vector<JobId> jobs_;   // guarded
  bool cancelled_ = false;    // guarded
  // The worker that drains:
  std::vector<Choice> choices_;
  std::size_t done_ = 0;
  bool begun_ = false, over_ = false;
  Clock::time_point last_sent_ = Clock::now();
};

// ---- towards the engine ----

void RunningGeneration::start() {
  std::vector<Job> jobs;
  if (s_.request.options.adapters.empty()) s_.request.options.adapters = s_.served->adapters.scales();
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    jobs.push_back(make_job(i));
    if (!s_.request.output) continue;
    text::OutputOptions options;
    options.tools = s_.request.tools;
    options.start = s_.request.output_start;
    options.parse_reasoning = s_.request.parse_reasoning;
    options.stream_arguments = s_.request.stream_arguments;
    options.id_seed = jobs.back().request.sampling.seed;
    choices_[i].parser.emplace(s_.request.output, options);
  }
  std::vector<JobId> ids = s_.served->service->submit(std::move(jobs));
  bool late = false;
  {
    const std::lock_guard lock(mutex_);
    jobs_ = ids;
    late = cancelled_;
  }
  s_.responder->on_gone([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->cancel();
  });
  if (late) cancel();
}

void RunningGeneration::cancel() {
  std::vector<JobId> ids;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    ids = jobs_;
  }
  for (const JobId id : ids) s_.served->service->cancel(id);
}

TokenChoice RunningGeneration::describe(text::Token token, float log_probability) const {
  return {token, tokenizer().piece(token, true), log_probability};
}

TokenLogprob RunningGeneration::describe(text::Token token, float log_probability,
                                         const std::vector<engine::TokenProbability>& top) const {
  TokenLogprob described;
  static_cast<TokenChoice&>(described) = describe(token, log_probability);
  const std::size_t count = std::min(*s_.request.logprobs, top.size());
  for (std::size_t i = 0; i < count; ++i)
    described.top.push_back(describe(top[i].token, top[i].log_probability));
  return described;
}

Job RunningGeneration::make_job(std::size_t choice) {
  const auto n = static_cast<std::size_t>(s_.request.n);
  Job job;
  job.user = s_.user;
  job.priority = s_.request.priority;
  job.slot = s_.request.slot;
  job.request = s_.request.options;
  job.request.prompt = s_.request.prompts[choice / n];
  job.request.sampling.seed += choice % n;
  const bool logprobs = s_.request.logprobs.has_value();
  // The engine gives none for 0; the chosen token's own is wanted all the same.
  if (logprobs) job.request.logprobs = std::max<std::size_t>(*s_.request.logprobs, 1);
  auto self = shared_from_this();
  job.request.on_token = [self, choice, logprobs](const engine::TokenEvent& event) {
    TokenCame came{choice, event.token, event.text, event.settled, std::nullopt};
    if (logprobs) came.logprob = self->describe(event.token, event.log_probability, event.top);
    self->push(std::move(came));
  };
  if (logprobs && s_.request.want_prompt_logprobs && choice % n == 0) {
    job.request.want_prompt_logits = true;
    choices_[choice].prompt_logprobs.push_back({});
    static_cast<TokenChoice&>(choices_[choice].prompt_logprobs[0]) = describe(job.request.prompt[0], 0);
    job.request.on_prompt_logits = [self, choice, n](std::int64_t position, std::span<const float> logits) {
      const auto& prompt = self->s_.request.prompts[choice / n];
      const auto next = static_cast<std::size_t>(position) + 1;
      if (next >= prompt.size()) return;
      float of_token = 0;
      const auto top =
          engine::top_log_probabilities(logits, *self->s_.request.logprobs, prompt[next], of_token);
      self->choices_[choice].prompt_logprobs.push_back(self->describe(prompt[next], of_token, top));
    };
  }
  job.on_done = [self, choice](engine::Result result) { self->push(ChoiceDone{choice, std::move(result)}); };
  return job;
}

// ---- events ----

void RunningGeneration::push(Event event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    if (draining_) return;
    draining_ = true;
  }
  workers_.post([self = shared_from_this()] { self->drain(); });
}

void RunningGeneration::drain() {
  while (true) {
    std::deque<Event> batch;
    {
      const std::lock_guard lock(mutex_);
      if (events_.empty()) {
        draining_ = false;
        return;
      }
      batch.swap(events_);
    }
    for (Event& event : batch) {
      if (over_) continue;
      try {
        std::visit([&](auto& e) { handle(e); }, event);
      } catch (...) {
        fail(current_request_error());
      }
    }
  }
}

void RunningGeneration::handle(TokenCame& event) {
  Choice& choice = choices_[event.choice];
  choice.tokens.push_back(event.token);
  if (event.logprob) choice.logprobs.push_back(std::move(*event.logprob));
  Piece piece;
  piece.choice = event.choice;
  piece.text = std::move(event.text);
  piece.events = parse(choice, piece.text, false);
  if (!s_.request.stream) return;
  const std::size_t end = std::min(event.settled, choice.tokens.size());
  for (; choice.sent < end; ++choice.sent) {
    piece.tokens.push_back(choice.tokens[choice.sent]);
    if (s_.request.logprobs) piece.logprobs.push_back(choice.logprobs[choice.sent]);
  }
  if (!piece.text.empty() || !piece.tokens.empty()) send(s_.format->piece(piece));
}

std::vector<text::OutputEvent> RunningGeneration::parse(Choice& choice, std::string_view text, bool last) {
  if (!choice.parser) return {};
  std::vector<text::OutputEvent> events = last ? choice.parser->finish() : choice.parser->push(text);
  for (const text::OutputEvent& event : events) choice.parsed.add(event);
  return events;
}

void RunningGeneration::handle(ChoiceDone& event) {
  engine::Result& result = event.result;
  if (result.stop == engine::StopReason::error)
    return fail(RequestError(ErrorKind::internal, "the answer could not be computed: " + result.error));
  if (result.stop == engine::StopReason::cancelled)
    return fail(RequestError(ErrorKind::unavailable, "the request was cancelled: the server shuts down"));
  Choice& choice = choices_[event.choice];
  Outcome& outcome = choice.outcome.emplace();
  outcome.choice = event.choice;
  outcome.text = std::move(result.text);
  outcome.tokens = std::move(result.tokens);
  outcome.stop = result.stop;
  outcome.stop_text = std::move(result.stop_text);
  outcome.usage = result.usage;
  outcome.cache_note = std::move(result.cache_note);
  if (outcome.stop == engine::StopReason::end_of_generation &&
      choice.logprobs.size() == outcome.tokens.size() + 1)
    outcome.end = choice.logprobs.back();
  if (choice.logprobs.size() > outcome.tokens.size()) choice.logprobs.resize(outcome.tokens.size());
  outcome.logprobs = std::move(choice.logprobs);
  outcome.prompt_logprobs = std::move(choice.prompt_logprobs);
  Piece rest;
  rest.choice = event.choice;
  rest.events = parse(choice, {}, true);
  outcome.parsed = std::move(choice.parsed);
  if (!choice.parser) outcome.parsed.content = outcome.text;
  if (s_.request.stream && !rest.events.empty()) send(s_.format->piece(rest));
  if (s_.request.stream) send(s_.format->choice_end(outcome));
  if (++done_ == choices_.size()) complete();
}

void RunningGeneration::handle(Tick& event) {
  if (event.now - last_sent_ >= event.interval) send(s_.format->heartbeat());
}

// ---- towards the client ----

void RunningGeneration::send(std::string bytes) {
  if (!begun_) {
    begun_ = true;
    http::Response head;
    head.content_type = s_.format->stream_content_type();
    head.headers.push_back({"Cache-Control", "no-cache"});
    head.headers.push_back({"X-Accel-Buffering", "no"});
    head.body = s_.format->begin();
    s_.responder->start(std::move(head));
  }
  last_sent_ = Clock::now();
  if (!bytes.empty()) s_.responder->write(std::move(bytes));
}

TotalUsage RunningGeneration::usage() const {
  TotalUsage total;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    if (!choices_[i].outcome) continue;
    const engine::Usage& usage = choices_[i].outcome->usage;
    total.completion_tokens += usage.completion_tokens;
    if (i % static_cast<std::size_t>(s_.request.n) != 0) continue;
    total.prompt_tokens += usage.prompt_tokens;
    total.cached_tokens += usage.cached_tokens;
  }
  return total;
}

void RunningGeneration::summarize() {
  if (!s_.on_end) return;
  GenerationSummary summary;
  summary.usage = usage();
  if (const auto& first = choices_.front().outcome) {
    summary.finish = engine::to_string(first->stop);
    summary.queue_and_prompt_ms = first->usage.first_token_ms;
    summary.cache_note = first->cache_note;
  }
  s_.on_end(summary);
}

void RunningGeneration::complete() {
  over_ = true;
  summarize();
  if (s_.request.stream) {
    send(s_.format->end(usage()));
    s_.responder->finish();
  } else {
    const TotalUsage total = usage();
    std::vector<Outcome> outcomes;
    for (Choice& choice : choices_) outcomes.push_back(std::move(*choice.outcome));
    http::Response response;
    response.body = s_.format->whole(outcomes, total);
    s_.responder->respond(std::move(response));
  }
}

void RunningGeneration::fail(const RequestError& error) {
  over_ = true;
  summarize();
  if (begun_) {
    s_.responder->write(s_.format->failed(error));
    s_.responder->finish();
  } else {
    s_.responder->respond(s_.error_response(error));
  }
  cancel();  // the other choices
}

}  // namespace

std::shared_ptr<Generation> start_generation(GenerationSetup setup, Workers& workers) {
  auto generation = std::make_shared<RunningGeneration>(std::move(setup), workers);
  generation->start();
  return generation;
}

}  // namespace quipu::server
