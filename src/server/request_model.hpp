// The one request model: what every dialect's JSON becomes, and what comes back before a dialect gives it its
// own form. docs/server.md tells how a request goes through the server.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "server/request_error.hpp"
#include "text/output/output_parser.hpp"
#include "text/tokenizer.hpp"

namespace quipu::server {

/// What is to be generated. Choice `p * n + k` is the k-th answer to prompt p.
struct GenerationRequest {
  std::vector<std::vector<text::Token>> prompts;  ///< at least one, none empty
  /// Sampling, limits, stop strings: all but the prompt, `logprobs` and the callbacks. Choice k of n draws
  /// with seed + k, so that a single choice is the same as the first of many.
  engine::Request options;
  std::int64_t n = 1;
  /// Log probabilities of the tokens, each with so many of the most probable ones; nothing: none.
  std::optional<std::size_t> logprobs;
  bool want_prompt_logprobs = false;  ///< with `logprobs`, for the prompt's tokens as well
  bool stream = false;
  int priority = 0;        ///< higher ones start first
  std::int64_t slot = -1;  ///< the place it must have, see Job
  /// How answers are taken apart into text, reasoning and calls; null: all is text.
  std::shared_ptr<const text::OutputFormat> output;
  text::OutputStart output_start = text::OutputStart::answer;
  std::vector<text::Tool> tools;  ///< that may be called
  bool parse_reasoning = true;
  /// Arguments of calls are sent as they are generated: a grammar holds them to their form.
  bool stream_arguments = false;
  /// What was asked for and cannot be had, for the answer to say.
  std::vector<std::string> warnings;

  std::size_t choices() const { return prompts.size() * static_cast<std::size_t>(n); }
};

struct TokenChoice {
  text::Token token = -1;
  std::string bytes;          ///< of the piece, perhaps part of a character
  float log_probability = 0;  ///< natural log of the softmax of the raw logits
};

struct TokenLogprob : TokenChoice {
  std::vector<TokenChoice> top;  ///< most probable first
};

/// Text that became final, of one choice, and its tokens. They may trail behind the text, since a token
/// counts once it surely is no part of a stop string.
struct Piece {
  std::size_t choice = 0;
  std::string text;
  std::vector<text::OutputEvent> events;  ///< what became certain of it, with an output format
  std::vector<text::Token> tokens;
  std::vector<TokenLogprob> logprobs;  ///< one per token, when asked for
};

/// A choice that ended well: any reason but cancelled and error.
struct Outcome {
  std::size_t choice = 0;
  std::string text;
  text::ParsedOutput parsed;  ///< of `text`: without an output format all of it is content
  std::vector<text::Token> tokens;
  std::vector<TokenLogprob> logprobs;  ///< of `tokens`
  std::optional<TokenLogprob> end;     ///< of the end token that was drawn, with `logprobs`
  std::vector<TokenLogprob>
      prompt_logprobs;  ///< of the prompt; the first token has none (its `top` is empty)
  engine::StopReason stop = engine::StopReason::none;
  std::string stop_text;  ///< the stop string that ended it
  engine::Usage usage;
  std::string cache_note;  ///< see engine::Result
};

/// Sums over the choices, as APIs report them: a prompt counts once, however many answers it has.
struct TotalUsage {
  std::int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
};

/// A dialect's side of one generation. Calls come one after the other, on a worker thread. Either `whole`, or
/// for streams any number of `piece`, then `choice_end` per choice, then `end`; what they return is sent as
/// it is. `failed` may end a stream at any time; before the first byte went out an error is answered in the
/// ordinary way instead.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  virtual std::string whole(const std::vector<Outcome>& outcomes, const TotalUsage& usage) = 0;
  virtual std::string begin() { return {}; }
  virtual std::string piece(const Piece& piece) = 0;
  virtual std::string choice_end(const Outcome& outcome) = 0;
  virtual std::string end(const TotalUsage& usage) = 0;
  virtual std::string failed(const RequestError& error) = 0;
  virtual std::string stream_content_type() const { return "text/event-stream; charset=utf-8"; }
  /// Sent when a stream was silent for a while, so that nothing between client and server closes it.
  virtual std::string heartbeat() const { return ": waiting\n\n"; }
};

}  // namespace quipu::server
