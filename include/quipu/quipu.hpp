// quipu: the C++ interface. Load a GGUF model, generate text.
//
// Everything throws `quipu::Error`. Objects are cheap handles: copies of a Model share its weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quipu/error.hpp"

namespace quipu {

/// "0.1.0".
std::string_view version();

using TokenId = std::int32_t;

struct ChatMessage {
  std::string role;  ///< "system", "user", "assistant"
  std::string content;
};

struct ModelOptions {
  bool memory_map = true;  ///< false: read the file into memory
};

/// A loaded model: immutable, shared, usable from any thread.
class Model {
 public:
  /// Opens a GGUF file (the first shard of a split one). Throws: not_found, io, bad_file, unsupported.
  explicit Model(const std::filesystem::path& path, const ModelOptions& options = {});

  /// Token ids of any bytes. `add_special` adds BOS/EOS as the model asks; `parse_special` reads control
  /// tokens in the text as tokens.
  std::vector<TokenId> tokenize(std::string_view text, bool add_special = true,
                                bool parse_special = true) const;
  /// Text of token ids; control tokens are left out unless `special`. Throws: invalid_argument for an id
  /// outside the vocabulary.
  std::string detokenize(std::span<const TokenId> tokens, bool special = false) const;

  bool has_chat_template() const;
  /// The conversation as the model was trained to read it, with the assistant's turn opened. Throws:
  /// unsupported for a model without a template.
  std::string chat_prompt(std::span<const ChatMessage> messages) const;

  std::size_t vocabulary_size() const;
  std::int64_t trained_context() const;  ///< tokens
  std::string description() const;       ///< "llama 135M Q4_1"

 private:
  friend class Session;
  friend class Embedder;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

struct SessionOptions {
  std::int64_t context = 0;         ///< tokens; 0: the trained context, or what memory allows
  std::int64_t batch = 512;         ///< most tokens computed in one step
  int threads = 0;                  ///< 0: the physical cores that the process may use
  std::uint64_t memory_budget = 0;  ///< bytes for weights, cache and scratch; 0: what the machine has free
  std::string key_type = "f16", value_type = "f16";  ///< of the KV cache: f32, f16, bf16, q8_0
};

struct GenerateOptions {
  std::int64_t max_tokens = -1;   ///< -1: until the model stops or the context is full
  std::uint64_t seed = 0;         ///< same seed, same text
  double temperature = 0.8;       ///< >= 0; 0 is greedy
  std::int64_t top_k = 40;        ///< 0: off
  double top_p = 0.95;            ///< 1: off
  double min_p = 0.05;            ///< 0: off
  double repeat_penalty = 1.0;    ///< 1: off
  std::vector<std::string> stop;  ///< ends the text before the earliest match
  /// Called with each piece of text as it comes; false ends the generation.
  std::function<bool(std::string_view text)> on_text;
};

struct Generation {
  std::string text;
  std::vector<TokenId> tokens;
  std::string stop;  ///< "eos", "stop", "length", "context", "cancelled"
  std::int64_t prompt_tokens = 0, cached_tokens = 0;
};

/// One sequence of tokens and what the model remembers of it. One thread at a time.
class Session {
 public:
  /// Throws: out_of_memory, invalid_argument.
  explicit Session(const Model& model, const SessionOptions& options = {});

  /// Continues a prompt. What the prompt shares with the tokens of the call before is not computed again.
  /// Throws: context_overflow, invalid_argument.
  Generation generate(std::span<const TokenId> prompt, const GenerateOptions& options = {});
  Generation generate(std::string_view prompt, const GenerateOptions& options = {});
  /// The answer to a conversation, through the model's chat template.
  Generation chat(std::span<const ChatMessage> messages, const GenerateOptions& options = {});

  void reset();                                  ///< forgets all tokens
  void save(const std::filesystem::path& path);  ///< writes the remembered state; throws io
  void restore(
      const std::filesystem::path& path);  ///< throws not_found, bad_file, checksum, invalid_argument
  std::int64_t context() const;            ///< tokens

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

struct EmbedderOptions {
  std::string pooling;              ///< "none", "mean", "cls", "last", "rank"; empty: the model's own
  bool normalize = true;            ///< vectors of Euclidean length 1 (not with "rank")
  std::int64_t context = 0;         ///< most tokens of a text; 0: the trained context, at most 8192
  std::int64_t batch = 512;         ///< tokens computed in one step, when several texts share it
  int threads = 0;                  ///< 0: the physical cores that the process may use
  std::uint64_t memory_budget = 0;  ///< bytes for weights and scratch; 0: what the machine has free
};

/// Texts to vectors, and to scores with a reranker. A vector depends on its own text alone, whatever else is
/// asked for with it. One thread at a time.
class Embedder {
 public:
  /// Throws: unsupported ("rank" on a model without a classification head), out_of_memory, invalid_argument.
  explicit Embedder(const Model& model, const EmbedderOptions& options = {});

  /// One vector a text: `width()` numbers, with pooling "none" as many for each token. Throws:
  /// context_overflow for a text beyond the context, with both counts.
  std::vector<std::vector<float>> embed(std::span<const std::string> texts);
  std::vector<std::vector<float>> embed(std::span<const std::vector<TokenId>> texts);
  /// How well each document answers the query, higher is better: the first score of the model's head, as it
  /// is. Throws: unsupported for a model without one; as `embed`.
  std::vector<float> rerank(std::string_view query, std::span<const std::string> documents);

  std::string_view pooling() const;
  std::int64_t width() const;    ///< numbers of a vector; with "rank": scores
  std::int64_t context() const;  ///< tokens

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace quipu
