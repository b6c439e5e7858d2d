// The table of stages, and what values the parameters may have.
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "core/error.hpp"
#include "engine/sampling/stages.hpp"

namespace quipu::engine {

namespace {

constexpr std::array<Stage, 9> kStages{{
    {"penalties", 'e', apply_penalties, true},
    {"dry", 'd', apply_dry, true},
    {"top_n_sigma", 's', apply_top_n_sigma, false},
    {"top_k", 'k', apply_top_k, false},
    {"typ_p", 'y', apply_typical, false},
    {"top_p", 'p', apply_top_p, false},
    {"min_p", 'm', apply_min_p, false},
    {"xtc", 'x', apply_xtc, false},
    {"temperature", 't', apply_temperature, false},
}};

constexpr std::array<std::string_view, kStages.size()> stage_names() {
  std::array<std::string_view, kStages.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kStages[i].name;
  return names;
}
constexpr std::array<std::string_view, kStages.size()> kNames = stage_names();

struct Alias {
  std::string_view spelling, name;
};
constexpr std::array<Alias, 5> kAliases{{{"typical", "typ_p"},
                                         {"typical_p", "typ_p"},
                                         {"typ", "typ_p"},
                                         {"nucleus", "top_p"},
                                         {"temp", "temperature"}}};

[[noreturn]] void refuse(std::string_view name, double value, std::string_view allowed) {
  fail(ErrorCode::invalid_argument, "{} is {}, allowed is {}", name, value, allowed);
}

/// `allowed` is the interval in words; the comparisons are false for NaN.
void check(std::string_view name, double value, bool inside, std::string_view allowed) {
  if (!inside || !std::isfinite(value)) refuse(name, value, allowed);
}

void check_count(std::string_view name, std::int64_t value, std::int64_t least, std::string_view allowed) {
  if (value < least) fail(ErrorCode::invalid_argument, "{} is {}, allowed is {}", name, value, allowed);
}

}  // namespace

std::span<const Stage> all_stages() { return kStages; }

const Stage* find_stage(std::string_view name) {
  std::string plain(name);
  for (char& c : plain) c = c == '-' ? '_' : c;
  std::string_view wanted = plain;
  for (const Alias& alias : kAliases) {
    if (wanted == alias.spelling) {
      wanted = alias.name;
      break;
    }
  }
  for (const Stage& stage : kStages) {
    if (wanted == stage.name || (wanted.size() == 1 && wanted[0] == stage.letter)) return &stage;
  }
  return nullptr;
}

std::span<const std::string_view> SamplingParams::sampler_names() { return kNames; }

void SamplingParams::validate() const {
  const double t = temperature;
  check("temperature", t, t >= 0, "[0, inf); 0 is greedy");
  check("dynatemp_range", dynatemp_range, dynatemp_range >= 0, "[0, inf); 0 is off");
  check("dynatemp_exponent", dynatemp_exponent, dynatemp_exponent >= 0, "[0, inf)");
  check_count("top_k", top_k, 0, "0 or more; 0 is off");
  check("top_p", top_p, top_p >= 0 && top_p <= 1, "[0, 1]; 1 is off");
  check("min_p", min_p, min_p >= 0 && min_p <= 1, "[0, 1]; 0 is off");
  check("typical_p", typical_p, typical_p > 0 && typical_p <= 1, "(0, 1]; 1 is off");
  check("top_n_sigma", top_n_sigma, true, "(-inf, inf); 0 and below is off");
  check("xtc_probability", xtc_probability, xtc_probability >= 0 && xtc_probability <= 1, "[0, 1]; 0 is off");
  check("xtc_threshold", xtc_threshold, xtc_threshold >= 0 && xtc_threshold <= 1, "[0, 1]; above 0.5 is off");
  check("dry_multiplier", dry_multiplier, dry_multiplier >= 0, "[0, inf); 0 is off");
  check("dry_base", dry_base, dry_base >= 1, "[1, inf)");
  check_count("dry_allowed_length", dry_allowed_length, 0, "0 or more");
  check_count("dry_penalty_last_n", dry_penalty_last_n, -1, "-1 or more; -1 is the whole context, 0 is off");
  for (const auto& breaker : dry_sequence_breakers) {
    if (breaker.empty()) fail(ErrorCode::invalid_argument, "dry_sequence_breakers holds an empty sequence");
  }
  check_count("repeat_last_n", repeat_last_n, -1, "-1 or more; -1 is the whole context, 0 is off");
  check("repeat_penalty", repeat_penalty, repeat_penalty > 0, "(0, inf); 1 is off");
  check("presence_penalty", presence_penalty, true, "(-inf, inf); 0 is off");
  check("frequency_penalty", frequency_penalty, true, "(-inf, inf); 0 is off");
  if (mirostat != 0 && mirostat != 2) {
    fail(ErrorCode::invalid_argument, "mirostat is {}, allowed is 0 (off) or 2", mirostat);
  }
  check("mirostat_tau", mirostat_tau, mirostat_tau >= 0, "[0, inf)");
  check("mirostat_eta", mirostat_eta, mirostat_eta >= 0, "[0, inf)");
  check_count("min_keep", min_keep, 0, "0 or more");
  for (const auto& [token, bias] : logit_bias) {
    if (token < 0) fail(ErrorCode::invalid_argument, "logit_bias names token {}, ids start at 0", token);
    if (std::isnan(bias) || bias == std::numeric_limits<float>::infinity()) {
      fail(ErrorCode::invalid_argument, "logit_bias of token {} is {}, allowed is [-inf, inf)", token, bias);
    }
  }
  for (const std::string& name : samplers) {
    if (find_stage(name) != nullptr) continue;
    std::string known;
    for (const Stage& stage : kStages) {
      if (!known.empty()) known += ", ";
      known += stage.name;
    }
    fail(ErrorCode::invalid_argument, "samplers holds \"{}\", known are {}", printable(name, 60), known);
  }
}

}  // namespace quipu::engine
