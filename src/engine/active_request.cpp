#include "engine/active_request.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.hpp"
#include "engine/sampling/logprobs.hpp"

namespace quipu::engine {

namespace {

double milliseconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

/// With so many tokens left nothing is done about a constrained text's end.
constexpr std::int64_t kFarFromTheEnd = 4096;

/// Tokens that a shift keeps at the front.
std::int64_t kept_tokens(const Request& request, std::optional<std::int32_t> bos) {
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  if (request.keep < 0) return prompt;
  const bool has_bos = bos && request.prompt.front() == *bos;
  return std::min(prompt, std::max<std::int64_t>(request.keep, has_bos ? 1 : 0));
}

/// Prompts of a model that encodes them: the decoder's first token stands behind them.
void check_encoded(const Request& request, const RequestLimits& limits) {
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  if (prompt + 1 >= limits.context)
    fail(ErrorCode::context_overflow,
         "the prompt has {} tokens, which leaves nothing of the context's {} to write (a larger context: -c)",
         prompt, limits.context);
  if (request.want_prompt_logits)
    fail(ErrorCode::unsupported,
         "the probabilities of the prompt's own tokens were asked for, but the model's encoder gives none");
  if (request.context_shift)
    fail(ErrorCode::unsupported,
         "a context shift was asked for, but the model's encoder reads prompts whole");
}

}  // namespace

void check_request(const Request& request, const RequestLimits& limits) {
  if (!limits.gives_text)
    fail(ErrorCode::unsupported,
         "the model gives vectors of texts and no text: use it for embeddings or reranking");
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  if (prompt == 0) fail(ErrorCode::invalid_argument, "the prompt is empty; at least one token is needed");
  for (std::size_t i = 0; i < request.prompt.size(); ++i) {
    const std::int32_t token = request.prompt[i];
    if (token < 0 || token >= limits.vocab) {
      fail(ErrorCode::invalid_argument,
           "token {} at position {} of the prompt is outside the vocabulary of {}", token, i, limits.vocab);
    }
  }
  if (prompt > limits.context) {
    fail(ErrorCode::context_overflow,
         "the prompt has {} tokens, the context holds {}: {} too many (a larger context: -c)", prompt,
         limits.context, prompt - limits.context);
  }
  if (!request.adapters.empty() && request.adapters.size() != limits.adapters)
    fail(ErrorCode::invalid_argument, "the request has scales for {} adapters, there are {}",
         request.adapters.size(), limits.adapters);
  for (std::size_t i = 0; i < request.adapters.size(); ++i)
    if (!std::isfinite(request.adapters[i]))
      fail(ErrorCode::invalid_argument, "the scale of adapter {} is {}, expected a number", i,
           request.adapters[i]);
  request.sampling.validate();
  if (!request.sampling.logit_bias.empty()) {
    const std::int32_t highest = request.sampling.logit_bias.rbegin()->first;
    if (highest >= limits.vocab) {
      fail(ErrorCode::invalid_argument, "logit_bias names token {}, the vocabulary has {} tokens", highest,
           limits.vocab);
    }
  }
  if (request.max_tokens < -1) {
    fail(ErrorCode::invalid_argument, "max_tokens is {}, allowed is -1 (no limit) or more",
         request.max_tokens);
  }
  if (request.keep < -1 || request.keep > prompt) {
    fail(ErrorCode::invalid_argument,
         "keep is {}, allowed is -1 (the whole prompt) to {}, the prompt's length", request.keep, prompt);
  }
  if (limits.encodes_prompt) check_encoded(request, limits);
  const std::int64_t keep = request.keep < 0 ? prompt : request.keep;
  if (request.context_shift && limits.context - keep < 2) {
    fail(ErrorCode::invalid_argument,
         "keep is {}, which leaves {} of the context's {} positions; a context shift needs 2", keep,
         limits.context - keep, limits.context);
  }
  for (std::size_t i = 0; i < request.stop.size(); ++i) {
    if (request.stop[i].empty()) fail(ErrorCode::invalid_argument, "stop string {} is empty", i);
  }
}

ActiveRequest::ActiveRequest(RequestId id, Request request, memory::Sequence sequence, bool computed_here,
                             const text::Tokenizer& tokenizer, std::int64_t context,
                             std::optional<std::int32_t> decoder_start)
    : id_(id),
      request_(std::move(request)),
      sampler_(request_.sampling),
      decoder_(tokenizer, request_.special, decoder_start.value_or(request_.prompt.back())),
      stops_(request_.stop),
      tokenizer_(&tokenizer),
      sequence_(std::move(sequence)),
      computed_here_(computed_here),
      context_(context),
      encoded_(decoder_start ? static_cast<std::int64_t>(request_.prompt.size()) : 0),
      tokens_(request_.prompt),
      history_(request_.prompt),
      submitted_(Clock::now()) {
  if (request_.constraint) matcher_.emplace(request_.constraint);
  result_.usage.prompt_tokens = static_cast<std::int64_t>(request_.prompt.size());
  if (decoder_start) {
    tokens_.push_back(*decoder_start);
    history_ = {*decoder_start};  // what was written
  }
  // A prompt that fills the context leaves no room for a token: with a shift, room is made at once.
  if (request_.context_shift && request_.max_tokens != 0 && !request_.want_prompt_logits) make_room();
  result_.usage.cached_tokens = sequence_.length();
}

bool ActiveRequest::every_row_has_output() const {
  return request_.want_prompt_logits && !shifted_ &&
         prompt_logits_done_ < static_cast<std::int64_t>(request_.prompt.size());
}

bool ActiveRequest::wants_output(std::int64_t position) const {
  const auto prompt = static_cast<std::int64_t>(request_.prompt.size());
  if (every_row_has_output() && position >= prompt_logits_done_ && position < prompt) return true;
  const bool last = position + 1 == static_cast<std::int64_t>(tokens_.size());
  return last && request_.max_tokens != 0 && position + 1 < context_;
}

void ActiveRequest::begin() {
  if (!started_) started_ = Clock::now();
}

void ActiveRequest::store(std::int64_t rows) {
  sequence_.append(
      tokens().subspan(static_cast<std::size_t>(sequence_.length()), static_cast<std::size_t>(rows)));
}

void ActiveRequest::take_logits(std::int64_t position, std::span<const float> logits) {
  if (every_row_has_output() && position >= prompt_logits_done_) {
    prompt_logits_done_ = position + 1;
    if (request_.on_prompt_logits) request_.on_prompt_logits(position, logits);
  }
  const bool last = position + 1 == static_cast<std::int64_t>(tokens_.size());
  if (last && request_.max_tokens != 0 && position + 1 < context_) sample(logits);
}

std::int32_t ActiveRequest::draw(std::span<const float> logits) {
  if (!matcher_) return sampler_.sample(logits, history_);
  const auto allowed = matcher_->allowed();
  const std::int32_t token = sampler_.sample(logits, history_, TokenMask(*allowed));
  if (!matcher_->accept(token)) fail(ErrorCode::internal, "token {} was drawn against the constraint", token);
  // When what is left would not do to complete the text, it goes the shortest way to its end.
  const std::int64_t left = tokens_left() - 1;
  if (left >= kFarFromTheEnd || static_cast<std::int64_t>(matcher_->tokens_to_end()) <= left) return token;
  matcher_->rollback(1);
  const auto closing = matcher_->closing();
  const bool any =
      request_.sampling.logit_bias.empty() &&
      std::any_of(closing->begin(), closing->end(), [](std::uint64_t word) { return word != 0; });
  const std::int32_t chosen = any ? sampler_.sample(logits, history_, TokenMask(*closing)) : token;
  if (!matcher_->accept(chosen))
    fail(ErrorCode::internal, "token {} was drawn against the constraint", chosen);
  shortened_ |= chosen != token;
  return chosen;
}

std::int64_t ActiveRequest::tokens_left() const {
  const auto generated = static_cast<std::int64_t>(result_.tokens.size());
  const std::int64_t room =
      request_.context_shift ? kFarFromTheEnd + 1 : context_ - static_cast<std::int64_t>(tokens_.size());
  return request_.max_tokens < 0 ? room : std::min(room, request_.max_tokens - generated);
}

void ActiveRequest::sample(std::span<const float> logits) {
  std::int32_t token = -1;
  try {
    token = draw(logits);
  } catch (const Error& error) {
    finish(StopReason::error, error.message());
    return;
  }
  const auto now = Clock::now();
  if (!first_token_) first_token_ = now;

  TokenEvent event;
  event.token = token;
  event.logits = logits;
  if (request_.logprobs > 0)
    event.top = top_log_probabilities(logits, request_.logprobs, token, event.log_probability);
  // With a constraint an end token that the grammar does not name is the end of the text.
  const bool end =
      matcher_ ? matcher_->is_finished() : !request_.ignore_eos && tokenizer_->is_end_of_generation(token);
  StopReason reason = end ? StopReason::end_of_generation : StopReason::none;
  if (!end) {
    text_start_.push_back(decoded_bytes_);
    const bool shown = std::binary_search(request_.shown.begin(), request_.shown.end(), token);
    const std::string piece =
        shown ? decoder_.finish() + tokenizer_->piece(token, true) : decoder_.push(token);
    decoded_bytes_ += piece.size();
    event.text = stops_.push(piece);
    tokens_.push_back(token);
    history_.push_back(token);
    result_.tokens.push_back(token);
    const auto generated = static_cast<std::int64_t>(result_.tokens.size());
    if (stops_.matched()) {
      reason = StopReason::stop_string;
    } else if (matcher_ && matcher_->is_complete()) {
      reason = StopReason::end_of_generation;
    } else if (generated == request_.max_tokens) {
      reason = StopReason::max_tokens;
    } else if (!make_room()) {
      reason = StopReason::context_full;
    }
  }
  // Complete, but not as it would have been.
  if (shortened_ && reason == StopReason::end_of_generation) reason = StopReason::max_tokens;
  if (reason != StopReason::none && !stops_.matched()) {
    event.text += stops_.push(decoder_.finish());  // an unfinished character, as U+FFFD
    if (stops_.matched()) reason = StopReason::stop_string;
    event.text += stops_.finish();
  }
  if (stops_.matched()) {
    keep_tokens_before_stop();
    result_.stop_text = stops_.found();
  }
  result_.text += event.text;
  const auto settled = std::lower_bound(text_start_.begin(), text_start_.end(), result_.text.size());
  event.settled = reason == StopReason::none ? static_cast<std::size_t>(settled - text_start_.begin())
                                             : result_.tokens.size();
  if (request_.on_token) request_.on_token(event);
  if (reason != StopReason::none) finish(reason);
}

void ActiveRequest::keep_tokens_before_stop() {
  // Text starts ascend: tokens that begin at or behind the match belong to the stop string.
  const auto first = std::lower_bound(text_start_.begin(), text_start_.end(), stops_.text_bytes());
  result_.tokens.resize(
      std::min(result_.tokens.size(), static_cast<std::size_t>(first - text_start_.begin())));
}

bool ActiveRequest::make_room() {
  const auto size = static_cast<std::int64_t>(tokens_.size());
  if (size < context_) return true;
  if (!request_.context_shift) return false;
  const std::int64_t keep = kept_tokens(request_, tokenizer_->bos);
  const std::int64_t dropped = (size - keep + 1) / 2;
  tokens_.erase(tokens_.begin() + keep, tokens_.begin() + keep + dropped);
  sequence_.truncate(keep);
  shifted_ = true;
  return true;
}

void ActiveRequest::complete() {
  if (finished() || pending() > 0) return;
  // All tokens are stored and none was drawn: only the prompt was asked for, or there was no room.
  if (request_.max_tokens == 0) {
    finish(StopReason::max_tokens);
  } else if (!make_room() || pending() == 0) {
    finish(StopReason::context_full);
  }
}

bool ActiveRequest::reuse(memory::PrefixTree& tree) {
  if (!takes_prefix()) return true;
  const std::int64_t added = tree.extend(sequence_, tokens().first(tokens_.size() - 1));
  // Output that is computed again after a preemption was no part of the prompt.
  const std::int64_t prompt = result_.usage.prompt_tokens;
  if (!shifted_) result_.usage.cached_tokens = std::min(result_.usage.cached_tokens + added, prompt);
  return !tree.more_is_stored();
}

void ActiveRequest::note_cache(const memory::PrefixTree* tree) {
  if (std::exchange(cache_noted_, true)) return;
  const auto wanted = tokens().first(tokens_.size() - 1);
  if (static_cast<std::int64_t>(wanted.size()) - sequence_.length() < graph::kPagePositions) return;
  std::string& note = result_.cache_note;
  if (request_.want_prompt_logits) {
    note = "the prompt's own probabilities were asked for";
  } else if (tree == nullptr) {
    note = "the prefix cache is off";
  } else if (!request_.reuse_prefix) {
    note = "cache_prompt is false";
  } else if (!computed_here_) {
    note = "it goes on from a saved slot";
  } else if (sequence_.content_key() != 0) {
    note = "nothing more is known with these adapters and scales";
  } else {
    note = tree->why_not(wanted);
  }
}

void ActiveRequest::drop_memory() {
  sequence_.truncate(0);
  result_.usage.cached_tokens = 0;  // whatever was reused is computed after all
}

void ActiveRequest::finish(StopReason reason, std::string error) {
  if (finished()) return;
  result_.stop = reason;
  result_.error = std::move(error);
  Usage& usage = result_.usage;
  usage.completion_tokens = static_cast<std::int64_t>(result_.tokens.size());
  const auto now = Clock::now();
  if (started_) usage.prompt_ms = milliseconds(first_token_.value_or(now) - *started_);
  if (first_token_) {
    usage.first_token_ms = milliseconds(*first_token_ - submitted_);
    usage.generation_ms = milliseconds(now - *first_token_);
  }
}

}  // namespace quipu::engine
