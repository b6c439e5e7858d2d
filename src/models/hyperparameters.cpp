#include <algorithm>
#include <cmath>
#include <limits>

#include "models/keys.hpp"
#include "models/model.hpp"
#include "models/rope_settings.hpp"

namespace quipu::models {
namespace {

// Far above any model there is; they keep products of two sizes within 64 bits and absurd files out.
constexpr std::uint64_t kMaxWidth = 1u << 24;
constexpr std::uint64_t kMaxHeads = 1u << 16;
constexpr std::uint64_t kMaxHeadDim = 1u << 16;

void read_heads(const Keys& keys, Hyperparameters& h) {
  h.heads = keys.per_layer("attention.head_count", h.layers, 1, kMaxHeads);
  h.kv_heads = keys.metadata().find(keys.key("attention.head_count_kv")) != nullptr
                   ? keys.per_layer("attention.head_count_kv", h.layers, 1, kMaxHeads)
                   : h.heads;
  for (std::size_t i = 0; i < h.layers; ++i)
    if (h.heads[i] % h.kv_heads[i] != 0)
      keys.reject("attention.head_count_kv", fmt::format("{} in block {}", h.kv_heads[i], i),
                  fmt::format("a divisor of the {} heads there", h.heads[i]));

  if (const auto key = keys.try_count("attention.key_length", 1, kMaxHeadDim)) {
    h.key_dim = *key;
  } else {
    if (h.embedding % h.heads[0] != 0)
      keys.reject("embedding_length", fmt::format("{}", h.embedding),
                  fmt::format("a multiple of {} = {}, since there is no {}", keys.key("attention.head_count"),
                              h.heads[0], keys.key("attention.key_length")));
    h.key_dim = h.embedding / h.heads[0];
    if (h.key_dim > kMaxHeadDim)
      keys.reject(
          "embedding_length", fmt::format("{}", h.embedding),
          fmt::format("heads of at most {}, found {} heads of {}", kMaxHeadDim, h.heads[0], h.key_dim));
  }
  h.value_dim = keys.try_count("attention.value_length", 1, kMaxHeadDim).value_or(h.key_dim);
}

/// The epsilon of whichever norm the architecture has.
void read_epsilon(const Keys& keys, Hyperparameters& h) {
  constexpr std::string_view kLayerNorm = "attention.layer_norm_epsilon";
  const bool layer = keys.metadata().find(keys.key(kLayerNorm)) != nullptr;
  h.norm_eps =
      static_cast<float>(keys.number(layer ? kLayerNorm : "attention.layer_norm_rms_epsilon", 0, 1, true));
}

void read_window(const Keys& keys, Hyperparameters& h) {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  const auto window = keys.try_count("attention.sliding_window", 0, UINT32_MAX);
  h.states_window = window.has_value();
  h.sliding_window = window.value_or(0);
  h.rope_freq_base_windowed = keys.try_number("rope.freq_base_swa", 1, 1e15, true).value_or(0);
  h.shared_kv_layers =
      keys.try_count("attention.shared_kv_layers", 0, h.layers > 0 ? h.layers - 1 : 0).value_or(0);
  const gguf::Value* pattern = keys.metadata().find(keys.key(kPattern));
  if (pattern == nullptr) return;
  if (pattern->type != gguf::ValueType::array) {
    const std::uint32_t every = keys.count(kPattern, 1, UINT32_MAX);
    h.window_period = every;
    for (std::uint32_t i = 0; i < h.layers; ++i) h.windowed.push_back(i % every < every - 1);
    return;
  }
  const auto& array = std::get<gguf::Array>(pattern->data);
  std::vector<std::int64_t> flags;
  if (array.element_type == gguf::ValueType::boolean)
    for (const std::uint64_t flag : std::get<std::vector<std::uint64_t>>(array.items))
      flags.push_back(static_cast<std::int64_t>(flag));
  else
    flags = *keys.metadata().try_ints(keys.key(kPattern));
  if (flags.size() < h.layers)
    keys.reject(kPattern, fmt::format("an array of {}", flags.size()),
                fmt::format("a number, or a flag for each of the {} blocks", h.layers));
  for (std::uint32_t i = 0; i < h.layers; ++i) h.windowed.push_back(flags[i] != 0);
  h.key_dim_windowed = keys.try_count("attention.key_length_swa", 1, kMaxHeadDim).value_or(0);
  h.value_dim_windowed = keys.try_count("attention.value_length_swa", 1, kMaxHeadDim).value_or(0);
}

/// Gemma 3n: embeddings of each block's own, several streams, sparse activations.
void read_streams(const Keys& keys, Hyperparameters& h) {
  constexpr std::string_view kSparsity = "activation_sparsity_scale";
  h.per_layer_width = keys.try_count("embedding_length_per_layer_input", 0, kMaxWidth).value_or(0);
  h.altup_inputs = keys.try_count("altup.num_inputs", 1, 64).value_or(0);
  if (h.altup_inputs > 0)
    h.altup_active = keys.try_count("altup.active_idx", 0, h.altup_inputs - 1).value_or(0);
  if (keys.metadata().find(keys.key(kSparsity)) == nullptr) return;
  const std::vector<float> values = *keys.metadata().try_floats(keys.key(kSparsity));
  h.sparsity.assign(values.begin(), values.end());
  const auto is_usable = [](double v) { return v < std::numeric_limits<double>::infinity(); };
  if (h.sparsity.size() != h.layers || !std::all_of(h.sparsity.begin(), h.sparsity.end(), is_usable))
    keys.reject(kSparsity, fmt::format("an array of {}", h.sparsity.size()),
                fmt::format("a number, or -infinity, for each of the {} blocks", h.layers));
}

void read_decoder(const Keys& keys, Hyperparameters& h) {
  h.decoder_layers = keys.try_count("decoder_block_count", 1, 1u << 16).value_or(0);
  const std::uint32_t last = std::max(h.vocab, 1u) - 1;
  h.decoder_start = static_cast<std::int32_t>(keys.try_count("decoder_start_token_id", 0, last).value_or(0));
}

void read_scales(const Keys& keys, Hyperparameters& h) {
  const auto read = [&](std::string_view name, float low = 0) {
    return static_cast<float>(keys.try_number(name, low, 1e6).value_or(0));
  };
  h.embedding_scale = read("embedding_scale");
  h.residual_scale = read("residual_scale");
  h.attention_scale = read("attention.scale");
  h.logit_scale = read("logit_scale");
  h.attention_soft_cap = read("attn_logit_softcapping");
  h.final_soft_cap = read("final_logit_softcapping");
  h.temperature_scale = read("attention.temperature_scale");
  h.temperature_length = keys.try_count("attention.temperature_length", 1, UINT32_MAX).value_or(0);
  h.clamp_qkv = read("attention.clamp_kqv");
  h.alibi_max_bias = read("attention.max_alibi_bias");
  if (const auto parallel = keys.metadata().try_bool(keys.key("use_parallel_residual")))
    h.parallel_residual = *parallel;
}

/// The activation's numbers, one for all blocks or one for each; these keys have no architecture before them.
void read_xielu(const Keys& keys, Hyperparameters& h) {
  const auto read = [&](std::string_view name, std::vector<double>& to) {
    const gguf::Value* value = keys.metadata().find(name);
    if (value == nullptr) return;
    if (value->type != gguf::ValueType::array) {
      to.assign(h.layers, keys.metadata().get_float(name));
    } else {
      const std::vector<float> numbers = *keys.metadata().try_floats(name);
      to.assign(numbers.begin(), numbers.end());
    }
    if (to.size() != h.layers ||
        !std::all_of(to.begin(), to.end(), [](double v) { return std::isfinite(v); }))
      fail(ErrorCode::bad_file, "{}: {} has {} values, expected a finite number for each of the {} blocks",
           keys.file(), name, to.size(), h.layers);
  };
  read("xielu.alpha_p", h.xielu.alpha_p);
  read("xielu.alpha_n", h.xielu.alpha_n);
  read("xielu.beta", h.xielu.beta);
  read("xielu.eps", h.xielu.eps);
}

void read_experts(const Keys& keys, Hyperparameters& h) {
  ExpertSettings& e = h.experts;
  const auto count = [&](std::string_view name, std::uint64_t high, std::uint32_t none = 0) {
    return keys.try_count(name, 0, high).value_or(none);
  };
  e.count = count("expert_count", kMaxHeads);
  e.used = count("expert_used_count", kMaxHeads);
  if (e.used > e.count || (e.count > 0 && e.used == 0))
    keys.reject("expert_used_count", fmt::format("{}", e.used),
                fmt::format("{} to {} = {}", e.count > 0 ? 1 : 0, keys.key("expert_count"), e.count));
  if (e.count == 0) return;
  e.hidden = count("expert_feed_forward_length", kMaxWidth);
  e.leading_dense = count("leading_dense_block_count", UINT32_MAX);
  e.step = keys.try_count("interleave_moe_layer_step", 1, UINT32_MAX).value_or(1);
  e.groups = count("expert_group_count", kMaxHeads);
  e.groups_used = count("expert_group_used_count", kMaxHeads);
  if (e.groups > 1 && (e.count % e.groups != 0 || e.groups_used == 0 || e.groups_used > e.groups ||
                       e.count / e.groups * e.groups_used < e.used))
    keys.reject(
        "expert_group_count", fmt::format("{} with {} used", e.groups, e.groups_used),
        fmt::format("a divisor of the {} experts, with enough groups for {} of them", e.count, e.used));
  e.gating = keys.try_count("expert_gating_func", 0, 3).value_or(0);
  e.renormalise = keys.metadata().try_bool(keys.key("expert_weights_norm"));
  e.weights_scale = static_cast<float>(keys.try_number("expert_weights_scale", 0, 1e6).value_or(0));
}

void read_latent(const Keys& keys, Hyperparameters& h) {
  h.latent.q_rank = keys.try_count("attention.q_lora_rank", 0, kMaxWidth).value_or(0);
  h.latent.kv_rank = keys.try_count("attention.kv_lora_rank", 0, kMaxWidth).value_or(0);
  h.latent.key_dim = keys.try_count("attention.key_length_mla", 0, kMaxHeadDim).value_or(0);
  h.latent.value_dim = keys.try_count("attention.value_length_mla", 0, kMaxHeadDim).value_or(0);
}

void read_pooling(const Keys& keys, Hyperparameters& h) {
  constexpr auto kMost = static_cast<std::uint64_t>(Pooling::rank);
  const auto read = [&](std::string_view name, std::uint64_t most) -> std::optional<Pooling> {
    const auto value = keys.try_count(name, 0, most);
    return value ? std::optional(static_cast<Pooling>(*value)) : std::nullopt;
  };
  const Architecture* architecture = find_architecture(h.architecture);
  h.causal = keys.metadata()
                 .try_bool(keys.key("attention.causal"))
                 .value_or(architecture == nullptr || !architecture->encoder);
  h.pooling = read("pooling_type", kMost);
  h.head_pooling = read("classifier.pooling_type", static_cast<std::uint64_t>(Pooling::last))
                       .value_or(h.causal ? Pooling::last : Pooling::cls);
  h.activation = keys.metadata().try_string(keys.key("hidden_activation")).value_or("");
  if (const TextList* labels = keys.metadata().try_strings(keys.key("classifier.output_labels")))
    h.labels = labels->strings();
}

void read_rope_dims(const Keys& keys, Hyperparameters& h) {
  const auto dims = keys.try_count("rope.dimension_count", 2, kMaxHeadDim);
  if (dims && *dims > h.key_dim)
    keys.reject("rope.dimension_count", fmt::format("{}", *dims),
                fmt::format("at most the head size, {}", h.key_dim));
  h.rope_dims = dims.value_or(h.key_dim);
  h.rope_dims_windowed = h.key_dim_windowed > 0 ? h.key_dim_windowed : h.rope_dims;
  if (const auto windowed = keys.try_count("rope.dimension_count_swa", 2, h.rope_dims_windowed))
    h.rope_dims_windowed = *windowed;
  if (h.rope_dims % 2 != 0)
    keys.reject(dims ? "rope.dimension_count" : "attention.key_length", fmt::format("{}", h.rope_dims),
                "an even number: rotary embedding turns pairs");
  if (h.rope_dims_windowed % 2 != 0)
    keys.reject("rope.dimension_count_swa", fmt::format("{}", h.rope_dims_windowed),
                "an even number: rotary embedding turns pairs");
}

constexpr std::string_view kPoolings[] = {"none", "mean", "cls", "last", "rank"};

}  // namespace

std::string_view to_string(Pooling pooling) { return kPoolings[static_cast<std::size_t>(pooling)]; }

std::optional<Pooling> find_pooling(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kPoolings); ++i)
    if (kPoolings[i] == name) return static_cast<Pooling>(i);
  return std::nullopt;
}

Hyperparameters read_hyperparameters(const gguf::File& file, std::string_view architecture,
                                     const RopeOverrides& overrides, std::vector<std::string>& warnings) {
  const Keys keys(file, architecture);
  Hyperparameters h;
  h.architecture = architecture;

  // A block has at least one tensor: nothing is allocated for a count that the file cannot hold.
  h.layers = keys.count("block_count", 1, UINT32_MAX);
  if (h.layers > file.tensors().size())
    keys.reject("block_count", fmt::format("{}", h.layers),
                fmt::format("no more than the {} tensors of the file", file.tensors().size()));
  // Blocks that predict further tokens stand at the end; they take no part in a step.
  if (const auto ahead = keys.try_count("nextn_predict_layers", 0, h.layers - 1)) h.layers -= *ahead;
  h.embedding = keys.count("embedding_length", 1, kMaxWidth);
  h.trained_context = keys.count("context_length", 1, UINT32_MAX);
  read_experts(keys, h);
  if (h.experts.count == 0 || keys.metadata().find(keys.key("feed_forward_length")) != nullptr)
    h.feed_forward = keys.per_layer("feed_forward_length", h.layers, h.experts.count > 0 ? 0 : 1, kMaxWidth);
  else
    h.feed_forward.assign(h.layers, 0);
  read_heads(keys, h);
  read_epsilon(keys, h);
  read_window(keys, h);
  read_streams(keys, h);
  read_scales(keys, h);
  read_xielu(keys, h);
  read_latent(keys, h);
  read_pooling(keys, h);

  read_rope_dims(keys, h);
  read_rope_settings(keys, overrides, h, warnings);

  h.vocab = static_cast<std::uint32_t>(
      std::min<std::size_t>(file.metadata().get_array("tokenizer.ggml.tokens").size(), UINT32_MAX));
  if (const auto stated = keys.try_count("vocab_size", 0, UINT32_MAX); stated && *stated != h.vocab)
    warnings.push_back(fmt::format("{} is {}, but the tokenizer has {} tokens; the tokens are taken",
                                   keys.key("vocab_size"), *stated, h.vocab));
  read_decoder(keys, h);
  return h;
}

}  // namespace quipu::models
