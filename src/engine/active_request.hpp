// One request from submission to result: its tokens, text, stopping and counts. No scheduling, no memory
// policy.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "engine/stop_strings.hpp"
#include "memory/prefix_tree.hpp"
#include "text/grammar/grammar.hpp"
#include "text/tokenizer.hpp"

namespace quipu::engine {

/// What a request must respect.
struct RequestLimits {
  std::int64_t context = 0;
  std::int64_t vocab = 0;
  bool gives_text = true;       ///< false: an encoder, which takes no requests at all
  std::size_t adapters = 0;     ///< that the engine has
  bool encodes_prompt = false;  ///< models::Model::has_prompt_encoder
};

/// Throws `Error` as `Engine::submit` says.
void check_request(const Request& request, const RequestLimits& limits);

class ActiveRequest {
 public:
  /// `sequence` holds a prefix of the prompt. The request has been checked. `decoder_start`: an encoder reads
  /// the prompt, and what is written begins with this token.
  ActiveRequest(RequestId id, Request request, memory::Sequence sequence, bool computed_here,
                const text::Tokenizer& tokenizer, std::int64_t context,
                std::optional<std::int32_t> decoder_start = std::nullopt);

  RequestId id() const { return id_; }
  memory::Sequence& sequence() { return sequence_; }
  const memory::Sequence& sequence() const { return sequence_; }
  /// What the model sees: prompt and output, less what context shifts dropped.
  std::span<const std::int32_t> tokens() const { return tokens_; }
  /// Tokens whose keys and values are not stored yet.
  std::int64_t pending() const { return static_cast<std::int64_t>(tokens_.size()) - sequence_.length(); }
  /// Leading tokens that an encoder reads, whole, before any other is computed; 0: none.
  std::int64_t encoded() const { return encoded_; }
  bool must_encode() const { return sequence_.length() < encoded_; }
  /// Of the engine's adapters; empty: none is used.
  std::span<const float> adapters() const { return request_.adapters; }
  bool every_row_has_output() const;
  /// Whether the step wants the logits of the token at `position`.
  bool wants_output(std::int64_t position) const;
  bool finished() const { return result_.stop != StopReason::none; }

  /// The step is about to compute tokens of this request.
  void begin();
  /// The step stored `rows` more tokens.
  void store(std::int64_t rows);
  /// Logits of the token at `position`, one call per wanted output, ascending, after `store`. Calls the
  /// request's callbacks; what they throw passes through.
  void take_logits(std::int64_t position, std::span<const float> logits);
  /// After the logits: ends a request that has nothing left to compute.
  void complete();
  /// Takes over known pages that hold the next tokens, but for the last token: its logits are not stored.
  /// False when more of them are in files that must wait for the next step.
  bool reuse(memory::PrefixTree& tree);
  /// Before the first step: says in the result why no more of the prompt is known. `tree`: null when it is
  /// off.
  void note_cache(const memory::PrefixTree* tree);
  /// Whether it may use pages that others computed.
  bool takes_prefix() const {
    return computed_here_ && request_.reuse_prefix && !request_.want_prompt_logits;
  }
  /// Whether all of the stored content was computed by this engine.
  bool computed_here() const { return computed_here_; }
  /// Gives up the stored keys and values; they are computed again later.
  void drop_memory();
  void finish(StopReason reason, std::string error = {});
  Result take_result() { return std::move(result_); }

 private:
  using Clock = std::chrono::steady_clock;
  void sample(std::span<const float> logits);
  /// Draws within the constraint, if there is one; throws `Error`.
  std::int32_t draw(std::span<const float> logits);
  /// Tokens that may still be drawn.
  std::int64_t tokens_left() const;
  /// Makes room for one more token: nothing to do, a shift, or false.
  bool make_room();
  void keep_tokens_before_stop();

  RequestId id_;
  Request request_;
  Sampler sampler_;
  std::optional<text::grammar::Matcher> matcher_;
  text::StreamDecoder decoder_;
  StopMatcher stops_;
  const text::Tokenizer* tokenizer_;
  memory::Sequence sequence_;
  bool computed_here_;
  std::int64_t context_, encoded_;
  std::vector<std::int32_t> tokens_;     // see tokens()
  std::vector<std::int32_t> history_;    // prompt and output, all of it: what sampling sees
  std::vector<std::size_t> text_start_;  // per generated token: bytes of text before it
  std::size_t decoded_bytes_ = 0;
  std::int64_t prompt_logits_done_ = 0;
  bool shifted_ = false, cache_noted_ = false;
  bool shortened_ = false;  // the constrained text was led to its end, as the tokens ran out
  Result result_;
  std::optional<Clock::time_point> started_, first_token_;
  Clock::time_point submitted_;
};

}  // namespace quipu::engine
