#include "server/generation_fields.hpp"

#include <boost/json.hpp>
#include <limits>
#include <random>

#include "core/error.hpp"

namespace quipu::server {

namespace json = boost::json;

namespace {

constexpr std::size_t kMostStops = 64, kLongestStop = 1024;

std::uint64_t random_seed() {
  std::random_device device;
  return device();  // 32 bits, so that a person can type it again
}

float bias_of(const json::value& value, const std::string& path) {
  if (value.is_bool() && !value.get_bool()) return -std::numeric_limits<float>::infinity();
  if (!value.is_number())
    bad_field(path, "\"{}\" holds {} as a bias, expected a number, or false to forbid the token", path,
              kind_of(value));
  return value.to_number<float>();
}

/// Of a token id, or of each token of a text.
std::vector<std::int32_t> tokens_of(const json::value& key, const std::string& path,
                                    const text::Tokenizer& tokenizer) {
  if (key.is_string()) return tokenizer.encode(as_text(key), {false, true});
  const auto id = as_integer(key);
  if (!id || *id < 0 || static_cast<std::size_t>(*id) >= tokenizer.size())
    bad_field(path, "\"{}\" names token {}, expected an id from 0 to {}", path, json::serialize(key),
              tokenizer.size() - 1);
  return {static_cast<std::int32_t>(*id)};
}

/// OpenAI: {"50256": -100}; llama.cpp: [[50256, -1.5], ["text", false]].
void read_logit_bias(const Fields& fields, const text::Tokenizer& tokenizer, engine::SamplingParams& params) {
  const json::value* value = fields.find("logit_bias");
  if (value == nullptr) return;
  const std::string path = fields.path("logit_bias");
  if (value->is_object()) {
    for (const auto& item : value->get_object()) {
      const std::string key(item.key());
      std::int64_t id = -1;
      const bool digits =
          !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
      if (digits) id = std::stoll(key);
      if (!digits || static_cast<std::size_t>(id) >= tokenizer.size())
        bad_field(path, "\"{}\" names token \"{}\", expected an id from 0 to {}", path, printable(key, 40),
                  tokenizer.size() - 1);
      params.logit_bias[static_cast<std::int32_t>(id)] = bias_of(item.value(), path);
    }
    return;
  }
  if (!value->is_array())
    bad_field(path, "\"{}\" is {}, expected an object of token ids and biases", path, kind_of(*value));
  for (const json::value& item : value->get_array()) {
    const json::array* pair = item.if_array();
    if (pair == nullptr || pair->size() != 2)
      bad_field(path, "\"{}\" holds {}, expected pairs of a token and a bias", path, kind_of(item));
    const float bias = bias_of((*pair)[1], path);
    for (const std::int32_t token : tokens_of((*pair)[0], path, tokenizer)) params.logit_bias[token] = bias;
  }
}

void read_samplers(const Fields& fields, engine::SamplingParams& params) {
  const json::value* value = fields.find("samplers");
  if (value == nullptr) return;
  params.samplers.clear();
  if (value->is_string()) {  // one letter a stage
    for (const char c : as_text(*value)) params.samplers.emplace_back(1, c);
    return;
  }
  const json::array* list = fields.array("samplers");
  for (const json::value& item : *list) {
    if (!item.is_string())
      bad_field("samplers", "\"samplers\" holds {}, expected names of samplers", kind_of(item));
    params.samplers.emplace_back(as_text(item));
  }
}

void read_dry_breakers(const Fields& fields, const text::Tokenizer& tokenizer,
                       engine::SamplingParams& params) {
  std::vector<std::string> breakers{"\n", ":", "\"", "*"};
  if (const json::array* list = fields.array("dry_sequence_breakers")) {
    breakers.clear();
    for (const json::value& item : *list) {
      if (!item.is_string())
        bad_field("dry_sequence_breakers", "\"dry_sequence_breakers\" holds {}, expected strings",
                  kind_of(item));
      breakers.emplace_back(as_text(item));
    }
    params.dry_sequence_breakers.clear();
  }
  if (params.dry_multiplier <= 0 || !params.dry_sequence_breakers.empty()) return;
  for (const std::string& breaker : breakers) {
    if (auto tokens = tokenizer.encode(breaker, {false, false}); !tokens.empty())
      params.dry_sequence_breakers.push_back(std::move(tokens));
  }
}

}  // namespace

std::vector<std::string> read_stop(const Fields& fields, std::string_view name) {
  const json::value* value = fields.find(name);
  std::vector<std::string> stops;
  if (value == nullptr) return stops;
  const std::string path = fields.path(name);
  const auto add = [&](const json::value& item) {
    if (!item.is_string()) bad_field(path, "\"{}\" holds {}, expected strings", path, kind_of(item));
    if (item.get_string().empty()) return;  // clients send it for "none"
    if (item.get_string().size() > kLongestStop)
      bad_field(path, "\"{}\" holds a string of {} bytes, allowed are {}", path, item.get_string().size(),
                kLongestStop);
    stops.emplace_back(as_text(item));
  };
  if (value->is_array()) {
    if (value->get_array().size() > kMostStops)
      bad_field(path, "\"{}\" holds {} strings, allowed are {}", path, value->get_array().size(), kMostStops);
    for (const json::value& item : value->get_array()) add(item);
  } else {
    add(*value);
  }
  return stops;
}

void read_placement(const Fields& fields, GenerationRequest& request) {
  request.slot = fields.integer("id_slot", -1, 1 << 20).value_or(-1);
  request.priority = static_cast<int>(fields.integer("priority", -100, 100).value_or(0));
}

void refuse_field(const Fields& fields, std::string_view name, std::string_view reason) {
  if (fields.has(name))
    bad_field(fields.path(name), "\"{}\" is not supported: {}", fields.path(name), reason);
}

engine::Request read_generation_fields(const Fields& fields, const Served& served) {
  engine::Request request = served.defaults;
  engine::SamplingParams& p = request.sampling;
  const auto number = [&](std::string_view name, double& target) {
    if (const auto value = fields.number(name)) target = *value;
  };
  const auto integer = [&](std::string_view name, std::int64_t& target) {
    if (const auto value = fields.integer(name)) target = *value;
  };
  const auto seed = fields.integer("seed");
  if (seed && *seed != -1)
    p.seed = static_cast<std::uint64_t>(*seed);
  else if (seed || served.random_seed)
    p.seed = random_seed();
  number("temperature", p.temperature);
  number("dynatemp_range", p.dynatemp_range);
  number("dynatemp_exponent", p.dynatemp_exponent);
  integer("top_k", p.top_k);
  if (p.top_k == -1) p.top_k = 0;  // how some clients write "off"
  number("top_p", p.top_p);
  number("min_p", p.min_p);
  number("typical_p", p.typical_p);
  number("top_n_sigma", p.top_n_sigma);
  number("xtc_probability", p.xtc_probability);
  number("xtc_threshold", p.xtc_threshold);
  number("dry_multiplier", p.dry_multiplier);
  number("dry_base", p.dry_base);
  integer("dry_allowed_length", p.dry_allowed_length);
  integer("dry_penalty_last_n", p.dry_penalty_last_n);
  integer("repeat_last_n", p.repeat_last_n);
  number("repeat_penalty", p.repeat_penalty);
  number("repetition_penalty", p.repeat_penalty);
  number("presence_penalty", p.presence_penalty);
  number("frequency_penalty", p.frequency_penalty);
  if (const auto mirostat = fields.integer("mirostat", 0, 2)) p.mirostat = static_cast<int>(*mirostat);
  number("mirostat_tau", p.mirostat_tau);
  number("mirostat_eta", p.mirostat_eta);
  integer("min_keep", p.min_keep);
  if (const auto ignore = fields.boolean("ignore_eos")) request.ignore_eos = *ignore;
  if (const auto cache = fields.boolean("cache_prompt")) request.reuse_prefix = *cache;
  const text::Tokenizer& tokenizer = served.model().tokenizer();
  read_logit_bias(fields, tokenizer, p);
  read_samplers(fields, p);
  read_dry_breakers(fields, tokenizer, p);
  if (const json::array* list = fields.array("lora"))
    request.adapters = served.adapters.read(*list, fields.path("lora"));
  if (fields.has("stop")) request.stop = read_stop(fields, "stop");
  p.validate();
  return request;
}

}  // namespace quipu::server
