// The groups of options that several subcommands share, with llama.cpp's names.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/placement.hpp"
#include "engine/engine.hpp"
#include "engine/sampling/sampler.hpp"
#include "models/model.hpp"
#include "text/grammar/grammar.hpp"

namespace CLI {
class App;
}

namespace quipu::app {

/// Which model, and how its file is read.
struct ModelFlags {
  std::string model;
  bool no_mmap = false, mlock = false;
  std::vector<int> cpus;
  std::string numa;
  std::string rope_type;
  std::optional<double> rope_scale, rope_freq_base, rope_freq_scale;
  std::optional<double> yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow;
  std::int64_t yarn_orig_ctx = 0;

  void add(CLI::App& app);
  /// Throws `Error` for combinations without a meaning.
  models::LoadOptions load_options() const;
  NumaPolicy numa_policy() const;
};

/// Context, batch, threads, cache types.
struct EngineFlags {
  std::int64_t context = 0, batch = 512, threads = 0;
  std::string cache_type_k = "f16", cache_type_v = "f16";
  std::uint64_t memory_budget = 0;
  bool no_huge_pages = false;
  std::string gpu_layers;

  /// `with_threads` false leaves -t to the command.
  void add(CLI::App& app, bool with_threads = true);
  /// Without backends: those need the thread count, see `open_session`.
  engine::EngineOptions options() const;
};

/// How the next token is drawn.
struct SamplingFlags {
  engine::SamplingParams params;
  std::int64_t seed = -1;
  std::vector<std::string> logit_bias, dry_breakers;

  void add(CLI::App& app);
  /// Checked parameters; a seed of -1 has become a random one. Throws `Error` (invalid_argument).
  engine::SamplingParams resolve(const text::Tokenizer& tokenizer) const;
  /// What can be checked before a model is loaded.
  void validate() const;
};

/// How a generation is bounded.
struct GenerationFlags {
  std::int64_t max_tokens = -1, keep = 0;
  bool ignore_eos = false, context_shift = false, special = false;
  std::vector<std::string> reverse_prompts;

  void add(CLI::App& app);
  /// A request without prompt and callbacks.
  engine::Request request(const engine::SamplingParams& sampling) const;
};

/// What the answer must obey.
struct ConstraintFlags {
  std::string json_schema, grammar, regex;
  std::int64_t reasoning_budget = -1;

  void add(CLI::App& app);
  /// Nothing when no flag is given. Throws `Error`: two flags at once, a bad grammar.
  std::optional<text::grammar::Grammar> grammar_asked_for() const;
};

}  // namespace quipu::app
