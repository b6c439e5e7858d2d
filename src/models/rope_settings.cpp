#include "models/rope_settings.hpp"

#include <algorithm>
#include <cmath>

namespace quipu::models {
namespace {

constexpr double kMaxFactor = 65536;
constexpr double kMaxBase = 1e15;
constexpr double kMaxBeta = 1e6;
constexpr double kMaxAttention = 1000;

/// One number of the setting: its place, the file's key, the user's value and flag, and its range.
struct Setting {
  double* value;
  std::string_view key;
  const std::optional<double>* override_value;
  std::string_view flag;
  double low, high;
  bool low_open;
};

void read(const Keys& keys, const Setting& s) {
  if (const auto from_file = keys.try_number(s.key, s.low, s.high, s.low_open)) *s.value = *from_file;
  if (*s.override_value) {
    const double given = **s.override_value;
    if (!(given >= s.low && given <= s.high) || (s.low_open && given == s.low))
      fail(ErrorCode::invalid_argument, "{} is {}, expected {}", s.flag, given,
           Keys::number_range(s.low, s.high, s.low_open));
    *s.value = given;
  }
  *s.value = static_cast<double>(static_cast<float>(*s.value));
}

std::string_view to_string(RopeScalingType type) {
  switch (type) {
    case RopeScalingType::none:
      return "none";
    case RopeScalingType::linear:
      return "linear";
    case RopeScalingType::ntk:
      return "ntk";
    case RopeScalingType::yarn:
      return "yarn";
    case RopeScalingType::longrope:
      return "longrope";
  }
  return "?";
}

RopeScalingType read_type(const Keys& keys) {
  const auto text = keys.metadata().try_string(keys.key("rope.scaling.type"));
  const auto has = [&](std::string_view name) { return keys.metadata().find(keys.key(name)) != nullptr; };
  // Files older than the type key give a bare factor, which was linear then; those of Phi-3 a bare magnitude.
  const std::string name = text                              ? *text
                           : has("rope.scaling.factor")      ? "linear"
                           : has("rope.scaling.attn_factor") ? "longrope"
                                                             : "none";
  for (const auto type : {RopeScalingType::none, RopeScalingType::linear, RopeScalingType::ntk,
                          RopeScalingType::yarn, RopeScalingType::longrope})
    if (name == to_string(type)) return type;
  if (name == "dynamic")
    fail(ErrorCode::unsupported,
         "{}: {} is '{}', which is not supported yet (none, linear, ntk, yarn and longrope are; another one "
         "can "
         "be chosen with --rope-scaling)",
         keys.file(), keys.key("rope.scaling.type"), name);
  keys.reject("rope.scaling.type", fmt::format("'{}'", printable(name)),
              "none, linear, ntk, yarn or longrope");
}

void warn_without_effect(const RopeOverrides& o, RopeScalingType type, std::vector<std::string>& warnings) {
  const auto warn = [&](bool given, std::string_view flag) {
    if (given)
      warnings.push_back(fmt::format(
          "{} has no effect: the RoPE scaling is '{}'{}", flag, to_string(type),
          type == RopeScalingType::none ? " (choose one with --rope-scaling)" : " (it belongs to yarn)"));
  };
  if (type == RopeScalingType::none) {
    warn(o.factor.has_value(), "--rope-scale");
    warn(o.original_context.has_value(), "--yarn-orig-ctx");
  }
  if (type != RopeScalingType::yarn) {
    warn(o.extrapolation_factor.has_value(), "--yarn-ext-factor");
    warn(o.attention_factor.has_value(), "--yarn-attn-factor");
    warn(o.beta_fast.has_value(), "--yarn-beta-fast");
    warn(o.beta_slow.has_value(), "--yarn-beta-slow");
  }
}

}  // namespace

void read_rope_settings(const Keys& keys, const RopeOverrides& overrides, Hyperparameters& hyper,
                        std::vector<std::string>& warnings) {
  RopeScaling& scaling = hyper.rope_scaling;
  const std::optional<double> no_override;
  read(keys, {&hyper.rope_freq_base, "rope.freq_base", &overrides.freq_base, "--rope-freq-base", 1, kMaxBase,
              true});

  RopeScalingType file_type = RopeScalingType::none;
  if (!overrides.type) {
    file_type = read_type(keys);
  } else if (const auto text = keys.metadata().try_string(keys.key("rope.scaling.type"))) {
    // With an override the file's own type may be one that quipu does not know.
    file_type = *text == "yarn"       ? RopeScalingType::yarn
                : *text == "linear"   ? RopeScalingType::linear
                : *text == "longrope" ? RopeScalingType::longrope
                                      : RopeScalingType::none;
  }
  scaling.type = overrides.type.value_or(file_type);
  if (!overrides.type && scaling.type == RopeScalingType::none && overrides.factor)
    scaling.type = RopeScalingType::linear;

  // The context before scaling. A linear file without the key states its context after scaling; for yarn the
  // key's absence means that context_length is the original (as in Hugging Face's configuration).
  const auto original = keys.try_count("rope.scaling.original_context_length", 1, UINT32_MAX);
  double file_factor = 1;
  if (file_type != RopeScalingType::none)
    read(keys, {&file_factor, "rope.scaling.factor", &no_override, "", 1, kMaxFactor, false});
  scaling.original_context =
      original ? *original
      : file_type == RopeScalingType::linear
          ? std::max(1u, static_cast<std::uint32_t>(hyper.trained_context / file_factor))
          : hyper.trained_context;
  if (overrides.original_context) {
    if (*overrides.original_context == 0)
      fail(ErrorCode::invalid_argument, "--yarn-orig-ctx is 0, expected at least 1");
    scaling.original_context = *overrides.original_context;
  }
  warn_without_effect(overrides, scaling.type, warnings);
  if (scaling.type == RopeScalingType::none) {
    if (file_type != RopeScalingType::none) hyper.trained_context = scaling.original_context;
    return;
  }

  if (scaling.type == RopeScalingType::longrope) {
    // Two sets of factors; which one applies may not change within a sequence, so it is chosen here.
    read(keys, {&scaling.attention_factor, "rope.scaling.attn_factor", &overrides.attention_factor,
                "--yarn-attn-factor", 0, kMaxAttention, true});
    scaling.long_factors = overrides.type.has_value();
    if (!scaling.long_factors)
      hyper.trained_context = std::min(hyper.trained_context, scaling.original_context);
    return;
  }

  scaling.factor = file_factor;
  if (overrides.factor) {
    if (!(*overrides.factor >= 1 && *overrides.factor <= kMaxFactor))
      fail(ErrorCode::invalid_argument, "--rope-scale is {}, expected {}", *overrides.factor,
           Keys::number_range(1, kMaxFactor, false));
    scaling.factor = static_cast<double>(static_cast<float>(*overrides.factor));
  }
  if (scaling.factor == 1 && !overrides.factor && file_type == RopeScalingType::none)
    warnings.push_back(
        fmt::format("--rope-scaling {} has no effect without a factor (give one with --rope-scale)",
                    to_string(scaling.type)));
  if (scaling.type == RopeScalingType::yarn) {
    scaling.log_multiplier =
        keys.try_number("rope.scaling.yarn_log_multiplier", 0, kMaxAttention).value_or(0);
    double further_attention = 1;  // some converters write this second key; the two multiply
    read(keys,
         {&further_attention, "rope.scaling.yarn_attn_factor", &no_override, "", 0, kMaxAttention, true});
    read(keys, {&scaling.attention_factor, "rope.scaling.attn_factor", &overrides.attention_factor,
                "--yarn-attn-factor", 0, kMaxAttention, true});
    if (!overrides.attention_factor) scaling.attention_factor *= further_attention;
    read(keys, {&scaling.extrapolation_factor, "rope.scaling.yarn_ext_factor",
                &overrides.extrapolation_factor, "--yarn-ext-factor", 0, 1, false});
    read(keys, {&scaling.beta_fast, "rope.scaling.yarn_beta_fast", &overrides.beta_fast, "--yarn-beta-fast",
                0, kMaxBeta, true});
    read(keys, {&scaling.beta_slow, "rope.scaling.yarn_beta_slow", &overrides.beta_slow, "--yarn-beta-slow",
                0, kMaxBeta, true});
  }

  const double context = std::floor(scaling.factor * scaling.original_context);
  if (context > UINT32_MAX)
    fail(ErrorCode::bad_file, "{}: a context of {} scaled by {} is {}, expected at most {}", keys.file(),
         scaling.original_context, scaling.factor, context, UINT32_MAX);
  hyper.trained_context = static_cast<std::uint32_t>(context);
}

}  // namespace quipu::models
