// Llama 4: blocks without positions between blocks of runs, experts whose matrices lie turned.
#include <algorithm>

#include "convert/families/groups.hpp"
#include "convert/families/parts.hpp"

namespace quipu::convert {
namespace {

/// Some layers are dense and some not: the model's loading names what is missing.
const TensorRule kLlama4FeedForward[] = {
    {"layers.{}.feed_forward.gate_proj", "blk.{}.ffn_gate", {Dim::ff, Dim::width}, Presence::optional},
    {"layers.{}.feed_forward.up_proj", "blk.{}.ffn_up", {Dim::ff, Dim::width}, Presence::optional},
    {"layers.{}.feed_forward.down_proj", "blk.{}.ffn_down", {Dim::width, Dim::ff}, Presence::optional},
    {"layers.{}.feed_forward.router", "blk.{}.ffn_gate_inp", {Dim::experts, Dim::width}, Presence::optional},
    {"layers.{}.feed_forward.experts.gate_up_proj",
     "blk.{}.ffn_gate_exps.weight",
     {Dim::experts, Dim::width, Dim::expert_ff2},
     Presence::optional,
     {.rows = rows::expert_gates,
      .matrices = Dim::experts,
      .target = {Dim::experts, Dim::expert_ff, Dim::width}}},
    {"layers.{}.feed_forward.experts.gate_up_proj",
     "blk.{}.ffn_up_exps.weight",
     {Dim::experts, Dim::width, Dim::expert_ff2},
     Presence::optional,
     {.rows = rows::expert_ups,
      .matrices = Dim::experts,
      .target = {Dim::experts, Dim::expert_ff, Dim::width}}},
    {"layers.{}.feed_forward.experts.down_proj",
     "blk.{}.ffn_down_exps.weight",
     {Dim::experts, Dim::expert_ff, Dim::width},
     Presence::optional,
     {.matrices = Dim::experts, .target = {Dim::experts, Dim::width, Dim::expert_ff}}},
    {"layers.{}.feed_forward.shared_expert.gate_proj",
     "blk.{}.ffn_gate_shexp",
     {Dim::expert_ff, Dim::width},
     Presence::optional},
    {"layers.{}.feed_forward.shared_expert.up_proj",
     "blk.{}.ffn_up_shexp",
     {Dim::expert_ff, Dim::width},
     Presence::optional},
    {"layers.{}.feed_forward.shared_expert.down_proj",
     "blk.{}.ffn_down_shexp",
     {Dim::width, Dim::expert_ff},
     Presence::optional},
};

constexpr std::uint64_t kRun = 8192, kPeriod = 4, kUnnormedExperts = 128;
constexpr double kGrowth = 0.1;

/// The widths of experts and of dense layers have each other's usual names.
void llama4_defaults(JsonFile& config) {
  config.set_default("rope_theta", 500000.0);
  config.set_default("head_dim", 128);
  config.set("moe_intermediate_size", static_cast<std::int64_t>(config.count("intermediate_size")));
  config.set("intermediate_size", static_cast<std::int64_t>(config.count("intermediate_size_mlp")));
}

/// Which layers turn their queries and keys, and see their run only; empty: three of four.
std::vector<bool> turned_layers(const Job& job) {
  const auto layers = static_cast<std::size_t>(job.sizes[Dim::layers]);
  const auto stated = job.config.try_numbers("no_rope_layers");
  if (!stated || stated->empty()) return {};
  if (stated->size() != layers)
    job.config.reject("no_rope_layers", std::to_string(stated->size()) + " entries",
                      "one for each of the " + std::to_string(layers) + " layers");
  std::vector<bool> turned;
  bool is_usual = true;
  for (const double flag : *stated) {
    turned.push_back(flag != 0);
    is_usual = is_usual && turned.back() == (turned.size() % kPeriod != 0);
  }
  return is_usual ? std::vector<bool>() : turned;
}

void add_llama4(Job& job) {
  const JsonFile& config = job.config;
  const auto layers = static_cast<std::uint64_t>(job.sizes[Dim::layers]);
  const std::uint64_t step = config.try_count("interleave_moe_layer_step").value_or(1);
  job.set_count("interleave_moe_layer_step", step);
  if (const auto mixed = config.try_numbers("moe_layers"))
    for (std::size_t i = 0; i < mixed->size(); ++i)
      if (step == 0 || (*mixed)[i] != static_cast<double>((i + 1) * step - 1) ||
          mixed->size() != layers / step)
        config.reject("moe_layers", "other layers", "every interleave_moe_layer_step-th");
  const auto types = config.try_texts("layer_types");
  if (types && std::all_of(types->begin(), types->end(),
                           [](const std::string& type) { return type == "full_attention"; })) {
    job.set_count("attention.sliding_window", 0);
    return;
  }
  const bool normed = static_cast<std::uint64_t>(job.sizes[Dim::experts]) != kUnnormedExperts;
  if (config.flag_or("use_qk_norm", true) != normed)
    config.reject("use_qk_norm", normed ? "false" : "true", "false for 128 experts, true for others");
  if (!config.flag_or("attn_temperature_tuning", true))
    config.reject("attn_temperature_tuning", "false", "true: files do not state it");
  if (const auto turned = turned_layers(job); !turned.empty())
    job.set_flags("attention.sliding_window_pattern", turned);
  // Where the model has other numbers than the published ones, which readers know.
  if (const auto run = config.try_count("attention_chunk_size"); run && *run != kRun)
    job.set_count("attention.sliding_window", *run);
  if (const auto growth = config.try_number("attn_scale"); growth && *growth != kGrowth)
    job.set_number("attention.temperature_scale", *growth);
  if (const auto length = config.try_count("floor_scale"); length && *length != kRun)
    job.set_count("attention.temperature_length", *length);
}

}  // namespace

std::vector<Family> llama4() {
  std::vector<Family> list;
  list.push_back({.name = "llama4",
                  .classes = "Llama4ForCausalLM|Llama4ForConditionalGeneration",
                  .tensors = join(kTrunk, kPreNorms, kAttention, kLlama4FeedForward),
                  .defaults = llama4_defaults,
                  .more = add_llama4});
  return list;
}

}  // namespace quipu::convert
