#include "flags.hpp"

#include <fmt/format.h>

#include <limits>
#include <random>

#include "cli.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

namespace quipu::app {
namespace {

/// "4G", "512M", "1073741824" as bytes (binary units).
std::uint64_t parse_bytes(const std::string& text) {
  std::string digits = text;
  std::uint64_t unit = 1;
  if (!digits.empty()) {
    switch (digits.back()) {
      case 'k':
      case 'K':
        unit = 1ull << 10;
        break;
      case 'm':
      case 'M':
        unit = 1ull << 20;
        break;
      case 'g':
      case 'G':
        unit = 1ull << 30;
        break;
      case 't':
      case 'T':
        unit = 1ull << 40;
        break;
      default:
        break;
    }
  }
  if (unit != 1) digits.pop_back();
  const auto value = parse_number(digits);
  if (!value || *value <= 0 || *value * static_cast<double>(unit) > 1e18)
    throw std::string("expected a size such as 512M or 3.5G");
  return static_cast<std::uint64_t>(*value * static_cast<double>(unit));
}

DType cache_dtype(const std::string& name) {
  const DTypeInfo* type = find_dtype(std::string_view(name));
  if (type == nullptr) fail(ErrorCode::invalid_argument, "unknown cache type {}", printable(name));
  return type->dtype;
}

/// ID(+/-)BIAS as llama.cpp writes it: "15043+1.5", "2-inf"; also ID=BIAS.
std::pair<std::int32_t, float> parse_logit_bias(const std::string& text) {
  const std::size_t sign = text.find_first_of("+-=", 1);
  const auto refuse = [&] {
    fail(ErrorCode::invalid_argument,
         "--logit-bias {}: expected ID+BIAS or ID-BIAS with a token id and a number, or ID-inf to forbid the "
         "token",
         printable(text, 60));
  };
  if (sign == std::string::npos) refuse();
  const auto id = parse_integer(text.substr(0, sign));
  const bool negative = text[sign] == '-' || (text[sign] == '=' && text.compare(sign + 1, 1, "-") == 0);
  std::string amount = text.substr(sign + 1);
  if (text[sign] == '=' && negative) amount.erase(0, 1);
  if (!id || *id < 0 || *id > INT32_MAX) refuse();
  if (amount == "inf" && negative)
    return {static_cast<std::int32_t>(*id), -std::numeric_limits<float>::infinity()};
  const auto bias = parse_number(amount);
  if (!bias || *bias < 0) refuse();
  return {static_cast<std::int32_t>(*id), static_cast<float>(negative ? -*bias : *bias)};
}

}  // namespace

void ModelFlags::add(CLI::App& app) {
  text_option(app, "-m,--model", model, "model: a GGUF file, a catalogue name or hf:org/repo[:file]");
  flag_option(app, "--no-mmap", no_mmap, "read the file into memory instead of mapping it");
  flag_option(app, "--mlock", mlock, "pin the weights into memory");
  parsed_option(app, "--cpus", "LIST", "CPUs to keep to, as 0-3,8", [this](const std::string& value) {
    try {
      cpus = parse_cpu_list(value);
    } catch (const Error& error) {
      throw std::string(error.message());
    }
  });
  choice_option(app, "--numa", numa, {"distribute", "isolate"},
                "machines with several memory nodes: spread memory over all, or keep to one");
  choice_option(app, "--rope-scaling", rope_type, {"none", "linear", "ntk", "yarn", "longrope"},
                "how positions beyond the trained context are reached (default: the model's)");
  number_option(app, "--rope-scale", rope_scale, {0, 1e6, true}, "context scaling factor");
  number_option(app, "--rope-freq-base", rope_freq_base, {0, 1e12, true}, "RoPE base frequency");
  number_option(app, "--rope-freq-scale", rope_freq_scale, {0, 1e6, true}, "1 / --rope-scale");
  integer_option(app, "--yarn-orig-ctx", yarn_orig_ctx, {0, UINT32_MAX, "0: the model's"},
                 "YaRN: context before scaling");
  number_option(app, "--yarn-ext-factor", yarn_ext_factor, {-1, 1}, "YaRN: extrapolation mix");
  number_option(app, "--yarn-attn-factor", yarn_attn_factor, {0, 1e6, true}, "YaRN: attention magnitude");
  number_option(app, "--yarn-beta-fast", yarn_beta_fast, {0, 1e9, true}, "YaRN: low correction dimension");
  number_option(app, "--yarn-beta-slow", yarn_beta_slow, {0, 1e9, true}, "YaRN: high correction dimension");
  group_options(app, "Model");
}

NumaPolicy ModelFlags::numa_policy() const {
  if (numa == "isolate") return NumaPolicy::isolate;
  return numa == "distribute" ? NumaPolicy::distribute : NumaPolicy::none;
}

models::LoadOptions ModelFlags::load_options() const {
  models::LoadOptions options;
  options.mode = no_mmap ? MappedFile::Mode::read : MappedFile::Mode::map;
  models::RopeOverrides& rope = options.rope;
  if (rope_type == "none") rope.type = models::RopeScalingType::none;
  if (rope_type == "linear") rope.type = models::RopeScalingType::linear;
  if (rope_type == "ntk") rope.type = models::RopeScalingType::ntk;
  if (rope_type == "yarn") rope.type = models::RopeScalingType::yarn;
  if (rope_type == "longrope") rope.type = models::RopeScalingType::longrope;
  if (rope_scale && rope_freq_scale)
    fail(ErrorCode::invalid_argument,
         "--rope-scale and --rope-freq-scale say the same thing: give one of them");
  rope.factor = rope_scale;
  if (rope_freq_scale) rope.factor = 1 / *rope_freq_scale;
  rope.freq_base = rope_freq_base;
  if (yarn_orig_ctx > 0) rope.original_context = static_cast<std::uint32_t>(yarn_orig_ctx);
  // llama.cpp's -1: the model's own value.
  if (yarn_ext_factor && *yarn_ext_factor >= 0) rope.extrapolation_factor = yarn_ext_factor;
  rope.attention_factor = yarn_attn_factor;
  rope.beta_fast = yarn_beta_fast;
  rope.beta_slow = yarn_beta_slow;
  return options;
}

void EngineFlags::add(CLI::App& app, bool with_threads) {
  integer_option(app, "-c,--ctx-size", context,
                 {1, INT32_MAX, "left out: the model's trained context, or what memory allows"},
                 "context size in tokens");
  integer_option(app, "-b,--batch-size", batch, {1, 65536}, "most tokens computed in one step");
  if (with_threads)
    integer_option(app, "-t,--threads", threads, {0, 4096, "0: what the machine and its limits give"},
                   "threads");
  const std::vector<std::string> types{"f32",  "f16",  "bf16", "q8_0",  "q4_0",
                                       "q4_1", "q5_0", "q5_1", "iq4_nl"};
  choice_option(app, "--cache-type-k", cache_type_k, types, "(-ctk) how keys are stored");
  choice_option(app, "--cache-type-v", cache_type_v, types, "(-ctv) how values are stored");
  parsed_option(app, "--memory-budget", "SIZE",
                "bytes for weights, cache and scratch together, as 512M or 3.5G",
                [this](const std::string& value) { memory_budget = parse_bytes(value); });
  flag_option(app, "--no-huge-pages", no_huge_pages, "leave mapped weights in the page cache");
  parsed_option(app, "--n-gpu-layers,--gpu-layers", "N",
                "(-ngl) layers on the GPU; this build computes on the CPU", [this](const std::string& value) {
                  const auto number = parse_integer(value);
                  if (value != "auto" && value != "all" && (!number || *number < -1))
                    throw std::string("expected a whole number >= -1, auto or all");
                  gpu_layers = value;
                });
  group_options(app, "Engine");
}

engine::EngineOptions EngineFlags::options() const {
  engine::EngineOptions options;
  options.context = context;
  options.batch = batch;
  options.k_dtype = cache_dtype(cache_type_k);
  options.v_dtype = cache_dtype(cache_type_v);
  options.memory_budget = memory_budget;
  options.huge_pages = !no_huge_pages;
  if (!gpu_layers.empty() && gpu_layers != "0" && gpu_layers != "auto" && gpu_layers != "-1")
    log::warning("-ngl {} has no effect: this build has no GPU backend", gpu_layers);
  return options;
}

void SamplingFlags::add(CLI::App& app) {
  integer_option(app, "-s,--seed", seed, {-1, INT64_MAX, "-1: a random seed"}, "seed of the random numbers");
  number_option(app, "--temp,--temperature", params.temperature, {0, 1e10}, "temperature; 0 is greedy");
  integer_option(app, "--top-k", params.top_k, {0, INT64_MAX, "0: off"}, "keep the k most probable tokens");
  number_option(app, "--top-p", params.top_p, {0, 1, false, "1: off"},
                "keep the most probable tokens up to this sum");
  number_option(app, "--min-p", params.min_p, {0, 1, false, "0: off"},
                "keep tokens at least this probable, relative to the best");
  number_option(app, "--typical,--typical-p", params.typical_p, {0, 1, true, "1: off"},
                "locally typical sampling");
  number_option(app, "--top-n-sigma,--top-nsigma", params.top_n_sigma, {.note = "<= 0: off"},
                "keep logits within n standard deviations of the best");
  number_option(app, "--xtc-probability", params.xtc_probability, {0, 1, false, "0: off"}, "XTC probability");
  number_option(app, "--xtc-threshold", params.xtc_threshold, {0, 1, false, "> 0.5: off"}, "XTC threshold");
  number_option(app, "--dry-multiplier", params.dry_multiplier, {.min = 0, .note = "0: off"},
                "DRY multiplier");
  number_option(app, "--dry-base", params.dry_base, {.min = 1}, "DRY base");
  integer_option(app, "--dry-allowed-length", params.dry_allowed_length, {.min = 0},
                 "DRY: free repetition length");
  integer_option(app, "--dry-penalty-last-n", params.dry_penalty_last_n,
                 {.min = -1, .note = "-1: the whole context, 0: off"}, "DRY: tokens looked back at");
  text_list_option(
      app, "--dry-sequence-breaker", dry_breakers,
      "DRY: text that ends a repetition (default newline, \":\", '\"', \"*\"); \"none\" clears the list");
  integer_option(app, "--repeat-last-n", params.repeat_last_n,
                 {.min = -1, .note = "-1: the whole context, 0: off"},
                 "tokens that the penalties look back at");
  number_option(app, "--repeat-penalty", params.repeat_penalty, {0, 1e6, true, "1: off"},
                "repetition penalty");
  number_option(app, "--presence-penalty", params.presence_penalty, {-1e6, 1e6}, "presence penalty");
  number_option(app, "--frequency-penalty", params.frequency_penalty, {-1e6, 1e6}, "frequency penalty");
  number_option(app, "--dynatemp-range", params.dynatemp_range, {.min = 0, .note = "0: off"},
                "dynamic temperature range");
  number_option(app, "--dynatemp-exp", params.dynatemp_exponent, {-1e6, 1e6}, "dynamic temperature exponent");
  parsed_option(app, "--mirostat", "0|2", "mirostat version; replaces the other truncations",
                [this](const std::string& value) {
                  if (value != "0" && value != "2") throw std::string("expected 0 (off) or 2");
                  params.mirostat = value == "2" ? 2 : 0;
                });
  number_option(app, "--mirostat-ent", params.mirostat_tau, {0, 1e6, true}, "mirostat target entropy");
  number_option(app, "--mirostat-lr", params.mirostat_eta, {0, 1e6, true}, "mirostat learning rate");
  text_list_option(app, "--logit-bias,-l", logit_bias,
                   "ID+BIAS or ID-BIAS added to a token's logit; ID-inf forbids it");
  parsed_option(app, "--samplers", "LIST", "order of the stages, separated by semicolons",
                [this](const std::string& value) {
                  params.samplers.clear();
                  for (std::size_t begin = 0; begin < value.size();) {
                    const std::size_t end = std::min(value.find(';', begin), value.size());
                    if (end > begin) params.samplers.push_back(value.substr(begin, end - begin));
                    begin = end + 1;
                  }
                });
  group_options(app, "Sampling");
}

void SamplingFlags::validate() const {
  params.validate();
  for (const std::string& text : logit_bias) parse_logit_bias(text);
}

engine::SamplingParams SamplingFlags::resolve(const text::Tokenizer& tokenizer) const {
  engine::SamplingParams result = params;
  if (seed >= 0) {
    result.seed = static_cast<std::uint64_t>(seed);
  } else {
    std::random_device device;
    result.seed = device();  // 32 bits, so that a person can type it again
  }
  for (const std::string& text : logit_bias) {
    const auto [id, bias] = parse_logit_bias(text);
    if (static_cast<std::size_t>(id) >= tokenizer.size())
      fail(ErrorCode::invalid_argument, "--logit-bias {}: the vocabulary has {} tokens", printable(text),
           tokenizer.size());
    result.logit_bias[id] += bias;
  }
  std::vector<std::string> breakers{"\n", ":", "\"", "*"};
  if (!dry_breakers.empty()) breakers = dry_breakers;
  if (breakers == std::vector<std::string>{"none"}) breakers.clear();
  if (result.dry_multiplier > 0)
    for (const std::string& breaker : breakers)
      if (auto tokens = tokenizer.encode(breaker, {false, false}); !tokens.empty())
        result.dry_sequence_breakers.push_back(std::move(tokens));
  result.validate();
  return result;
}

void GenerationFlags::add(CLI::App& app) {
  integer_option(app, "-n,--n-predict,--predict", max_tokens, {-1, INT64_MAX, "-1: until the model stops"},
                 "most tokens to generate");
  integer_option(app, "--keep", keep, {-1, INT64_MAX, "-1: the whole prompt"},
                 "prompt tokens that --context-shift keeps");
  flag_option(app, "--context-shift", context_shift,
              "drop the oldest half of a full context instead of ending");
  flag_option(app, "--ignore-eos", ignore_eos, "go on after the model's end token");
  flag_option(app, "--special", special, "print control tokens");
  text_list_option(app, "-r,--reverse-prompt", reverse_prompts,
                   "text that ends the generation; may be given several times");
  group_options(app, "Generation");
}

engine::Request GenerationFlags::request(const engine::SamplingParams& sampling) const {
  engine::Request request;
  request.sampling = sampling;
  request.max_tokens = max_tokens;
  request.stop = reverse_prompts;
  request.ignore_eos = ignore_eos;
  request.special = special;
  request.context_shift = context_shift;
  request.keep = keep;
  return request;
}

}  // namespace quipu::app
