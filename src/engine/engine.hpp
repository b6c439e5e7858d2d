// Requests to tokens: sequences, batching, sampling.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "engine/sampling/sampler.hpp"
#include "memory/kv_cache.hpp"
#include "memory/page_store.hpp"
#include "models/adapter.hpp"
#include "models/model.hpp"

namespace quipu::text::grammar {
class Constraint;
class Grammar;
}  // namespace quipu::text::grammar

namespace quipu::engine {

struct EngineOptions {
  std::int64_t context = 0;    ///< positions per sequence; 0: the trained context, or what memory allows
  std::int64_t sequences = 1;  ///< sequences that may run together (the pool holds context * sequences)
  std::int64_t batch = 512;    ///< most tokens in one step (the scheduler's budget), `-b`
  DType k_dtype = DType::f16, v_dtype = DType::f16;
  std::uint64_t memory_budget =
      0;  ///< bytes for weights, KV and scratch together; 0: what the machine has free
  std::vector<std::shared_ptr<backends::Backend>>
      backends;  ///< in order of preference; empty: the CPU backend
  /// Pages of the KV pool; 0: what context * sequences needs. Fewer is allowed: a sequence that finds no page
  /// makes the youngest one give up its own and be recomputed later.
  std::uint32_t pool_pages = 0;
  /// With pool_pages 0: rather fewer pages than a shorter context. The pool then takes at most half of the
  /// memory that is left, or what one whole context needs.
  bool shrink_pool = false;
  /// Share pages of prompts and answers between requests (but not what came from a file). Results are
  /// the same bytes; cached_tokens tells what was shared.
  bool prefix_cache = false;
  /// Folder for the pages that the prefix cache gives up, and for all of them at the end; empty: none.
  std::filesystem::path page_store;
  std::uint64_t page_store_bytes = 0;  ///< most bytes of its files
  std::uint64_t page_store_build = 0;  ///< pages that another build has stored are not used
  /// Bytes that one step reads from such files and writes to them while others wait (a page at least): some
  /// milliseconds where the system has them in memory. A prompt whose pages are read takes several steps.
  std::size_t file_bytes_per_step = std::size_t{16} << 20;
  /// What requests may use, by number; and what steers them all. Loaded for the engine's model.
  std::vector<std::shared_ptr<const models::Adapter>> adapters;
  std::shared_ptr<const models::ControlVector> control;
  /// Move mapped weights into huge pages (core/huge_pages.hpp), unless they take two thirds of the free
  /// memory.
  bool huge_pages = true;
  bool scatter_pages = memory::KvOptions{}.scatter;  ///< see memory::KvOptions
  /// Called when a request needs a page and nobody is left who could give one: may destroy or park sequences
  /// that were taken from the engine; true when it did. None: such a request ends with an error.
  std::function<bool()> last_resort;
};

/// What the engine takes, by owner; kept to for its whole life. Bytes.
struct MemoryReport {
  std::uint64_t weights = 0;  ///< mapped file bytes of the tensors, adapters included
  std::uint64_t kv = 0;
  std::uint64_t scratch = 0;
  std::uint64_t budget = 0;
  std::int64_t context = 0;  ///< positions per sequence that this gives
  std::int64_t trained_context = 0;
  std::string context_reason;  ///< e.g. "the model's trained context", "limited by 3.1 GiB of free memory"
};

enum class StopReason { none, end_of_generation, stop_string, max_tokens, context_full, cancelled, error };
std::string_view to_string(StopReason reason);  ///< "eos", "stop", "length", "context", "cancelled", "error"

/// One per generated token, in order; the token that ends the generation (end of turn, or the one that
/// completes a stop string) is reported as well, with the text that was still held back.
struct TokenEvent {
  std::int32_t token = -1;
  std::string text;  ///< printable text that this token released (see StreamDecoder, stop strings)
  std::vector<TokenProbability> top;  ///< when asked for
  float log_probability = 0;          ///< of the token, when `logprobs` is on
  /// Generated tokens, this one included, that surely belong to the text: they begin before its released end.
  std::size_t settled = 0;
  std::span<const float> logits;  ///< raw, valid during the call
};

struct Usage {
  std::int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
  double prompt_ms = 0, generation_ms = 0, first_token_ms = 0;
};

struct Request {
  std::vector<std::int32_t> prompt;
  SamplingParams sampling;
  /// A factor for each of the engine's adapters, 0: not used; empty: none is. Requests with different ones
  /// run in the same steps, and give the same bytes as alone.
  std::vector<float> adapters;
  std::int64_t max_tokens = -1;   ///< -1: until the model stops or the context is full
  std::vector<std::string> stop;  ///< generation ends before the earliest match; it is not part of the text
  std::size_t logprobs = 0;       ///< how many of the most probable tokens each event lists
  bool ignore_eos = false;
  bool special = false;             ///< print control tokens
  std::vector<std::int32_t> shown;  ///< control tokens that are printed all the same, ascending
  bool context_shift = false;       ///< at a full context drop the oldest half after `keep` and recompute
  std::int64_t keep = 0;            ///< prompt tokens that a shift keeps, a BOS besides; -1: the whole prompt
  /// What the output must obey, made by `Engine::constrain`; none: anything. The generation ends (end of
  /// generation) where the grammar allows nothing more; end tokens are drawn only where the text is complete,
  /// and always end it, whatever ignore_eos says. Where max_tokens or the context would cut the text, it goes
  /// the shortest way to its end instead, as far as the grammar tells one; it stops with max_tokens then.
  std::shared_ptr<text::grammar::Constraint> constraint;
  bool reuse_prefix = true;         ///< with EngineOptions::prefix_cache: take what others have computed
  bool want_prompt_logits = false;  ///< call on_prompt_logits for every prompt position (perplexity)
  std::function<void(const TokenEvent&)> on_token;  ///< one call per generated token
  std::function<void(std::int64_t position, std::span<const float> logits)> on_prompt_logits;
};

struct Result {
  /// Generated, without the token that stopped it and without those that lie wholly in a stop string: the
  /// first tokens.size() events are theirs.
  std::vector<std::int32_t> tokens;
  std::string text;
  StopReason stop = StopReason::none;
  std::string stop_text;   ///< when stop == stop_string: which one
  std::string error;       ///< when stop == error
  std::string cache_note;  ///< why no more of the prompt was found computed; empty: all was that can be
  Usage usage;
};

using RequestId = std::uint64_t;

/// Where an engine stands between two steps.
struct EngineStats {
  std::size_t waiting = 0, running = 0;
  std::int64_t rows = 0;          ///< computed by the last step
  std::size_t sequences = 0;      ///< that had rows in the last step
  std::uint64_t preemptions = 0;  ///< since the start: sequences that gave up their pages to others
  std::uint32_t pages = 0, free_pages = 0;
  std::size_t tree_pages = 0;     ///< known to the prefix tree, in use or not
  memory::PageStoreStats stored;  ///< of the folder for its pages
};

/// One model on one set of devices. Not thread-safe: one thread drives `step()`. Callbacks may call `submit`
/// and `cancel`; what they throw ends their own request (StopReason::error) and comes out of `step()`.
///
/// Prompt and output together never exceed the context. A generation that reaches it ends with context_full,
/// or goes on after a shift: the first `keep` tokens and the newer half of the rest are computed afresh,
/// exactly as a new run on those tokens would. Sampling keeps counting positions and sees all tokens of the
/// request.
class Engine {
 public:
  /// Throws `Error`: a context or budget that does not fit says what is needed and what there is.
  Engine(std::shared_ptr<const models::Model> model, EngineOptions options);
  ~Engine();

  const models::Model& model() const;
  const MemoryReport& memory() const;

  /// Queues a request. Throws `Error`: (context_overflow) a prompt longer than the context, by how much;
  /// (invalid_argument) an empty prompt, a token outside the vocabulary, bad sampling parameters or adapters.
  /// `base`: continue from this sequence's stored tokens; the longest common prefix is reused (the last
  /// prompt token is always computed again, so that no logits need storing; nothing is reused that was
  /// computed with other adapters). Its content moves into the request (fork first to keep it) and can be
  /// taken back with `take_sequence`; on an exception it is untouched. With want_prompt_logits nothing is
  /// reused, nor with a model that encodes its prompts. Without `base` the engine starts afresh.
  RequestId submit(Request request, memory::Sequence* base = nullptr);
  /// Schedules and runs one batch. False when nothing is left to do.
  bool step();
  /// Ends a request at the next step; unknown and finished ones are left alone.
  void cancel(RequestId id);
  /// Result of a finished request, once; nothing while it runs.
  std::optional<Result> take_result(RequestId id);
  /// The finished request's memory, to continue or save; nothing if already taken, or given up because
  /// running requests needed the pages.
  std::optional<memory::Sequence> take_sequence(RequestId id);
  /// Keeps a sequence as those of finished requests are kept: until taken, or given up for its pages.
  RequestId park(memory::Sequence sequence);
  /// What `take_sequence` would give, left where it is; null when there is nothing. Valid until the next
  /// call.
  const memory::Sequence* parked(RequestId id) const;
  /// How many of the first tokens the prefix cache knows, computed with these adapters.
  std::int64_t known_prefix(std::span<const std::int32_t> tokens, std::span<const float> adapters) const;
  /// Gives up idle pages until so many are free; false when there are too few.
  bool free_pages(std::size_t count);
  /// submit + step until done.
  Result generate(Request request, memory::Sequence* base = nullptr,
                  std::optional<memory::Sequence>* keep = nullptr);
  /// The grammar over this model's vocabulary, for any number of requests. Any thread.
  std::shared_ptr<text::grammar::Constraint> constrain(const text::grammar::Grammar& grammar) const;
  EngineStats stats() const;
  /// Throws `Error` (unsupported) for a model whose sequences are no base to continue from. Any thread.
  void check_continues() const;
  /// A fresh, empty sequence of this engine's pool, for requests with these adapters.
  memory::Sequence new_sequence(std::span<const float> adapters = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quipu::engine
