// The stages a sampler chain is made of: one function, one file each, and the table that names them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/sampling/candidates.hpp"
#include "engine/sampling/mass_prefix.hpp"
#include "engine/sampling/sampler.hpp"

namespace quipu::engine {

/// Numbers of the random draws at one position (the `index` of `philox_uniform`).
inline constexpr std::uint32_t kDrawToken = 0, kDrawXtc = 1, kDrawMirostat = 2;

/// Room that stages use while they run, kept from draw to draw.
struct StageRoom {
  std::vector<std::uint32_t> counts;  ///< of tokens; all 0 between uses
  std::vector<Weighted<Candidate>> eligible;
};

/// What a stage may look at besides the candidates.
struct StageContext {
  std::span<const std::int32_t> history;  ///< all tokens before the one to be drawn
  std::uint64_t position;                 ///< the draw's number: history.size()
  StageRoom& room;
};

using StageFunction = void (*)(Candidates&, const SamplingParams&, const StageContext&);

// Those that change logits.
void apply_logit_bias(Candidates& candidates, const SamplingParams& params, const StageContext& context);
void apply_penalties(Candidates& candidates, const SamplingParams& params, const StageContext& context);
void apply_dry(Candidates& candidates, const SamplingParams& params, const StageContext& context);
void apply_temperature(Candidates& candidates, const SamplingParams& params, const StageContext& context);
// Those that drop candidates.
void apply_top_k(Candidates& candidates, const SamplingParams& params, const StageContext& context);
void apply_top_p(Candidates& candidates, const SamplingParams& params, const StageContext& context);
void apply_min_p(Candidates& candidates, const SamplingParams& params, const StageContext& context);
void apply_typical(Candidates& candidates, const SamplingParams& params, const StageContext& context);
void apply_top_n_sigma(Candidates& candidates, const SamplingParams& params, const StageContext& context);
void apply_xtc(Candidates& candidates, const SamplingParams& params, const StageContext& context);

/// Mirostat 2 keeps one number from draw to draw: the surprise (in bits) above which tokens are cut.
/// Source: Basu et al., "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity" (ICLR
/// 2021), algorithm 2; mu starts at 2 tau.
class Mirostat {
 public:
  Mirostat(double tau, double eta) : tau_(tau), eta_(eta), mu_(2 * tau) {}
  double mu() const { return mu_; }
  /// Drops the candidates whose surprise -log2 p exceeds mu; keeps the best.
  void truncate(Candidates& candidates) const;
  /// mu moves towards tau: mu -= eta (surprise - tau), the surprise of the drawn token among those kept.
  void observe(Candidates& kept, std::int32_t token);

 private:
  double tau_, eta_, mu_;
};

/// One row of the table of stages.
struct Stage {
  std::string_view name;
  char letter;  ///< llama.cpp's short name
  StageFunction apply;
  bool changes_scores;  ///< acts on logits by history: applied for greedy choices and before mirostat as well
};
std::span<const Stage> all_stages();
/// By name, letter or alternative spelling ("typical", "top-k", "temp"); null when unknown.
const Stage* find_stage(std::string_view name);

}  // namespace quipu::engine
