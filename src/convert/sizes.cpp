#include "convert/sizes.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace quipu::convert {
namespace {

constexpr std::uint64_t kLargest = std::uint64_t{1} << 30;  // keeps products of two within 64 bits

std::int64_t size(const JsonFile& config, std::string_view keys) {
  const std::uint64_t value = config.try_count(keys).value_or(0);
  if (value > kLargest) config.reject(keys, fmt::format("{}", value), fmt::format("at most {}", kLargest));
  return static_cast<std::int64_t>(value);
}

std::int64_t required(const JsonFile& config, std::string_view keys) {
  if (config.count(keys) == 0) config.reject(keys, "0", "at least 1");
  return size(config, keys);
}

}  // namespace

void Sizes::set_heads(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
  set(Dim::heads, heads);
  set(Dim::kv_heads, kv_heads);
  set(Dim::head_dim, head_dim);
  set(Dim::q, heads * head_dim);
  set(Dim::kv, kv_heads * head_dim);
  set(Dim::qkv, (heads + 2 * kv_heads) * head_dim);
}

Sizes Sizes::read(const JsonFile& config) {
  Sizes s;
  s.set(Dim::one, 1);
  s.set(Dim::layers, required(config, kLayersKeys));
  s.set(Dim::width, required(config, kWidthKeys));
  s.set(Dim::vocab, required(config, "vocab_size"));
  const std::int64_t heads = required(config, kHeadsKeys);
  const std::int64_t kv_heads = config.has(kKvHeadsKeys) ? required(config, kKvHeadsKeys) : heads;
  if (heads % kv_heads != 0)
    config.reject(kKvHeadsKeys, fmt::format("{}", kv_heads), fmt::format("a divisor of the {} heads", heads));
  std::int64_t head_dim = size(config, "head_dim");
  if (head_dim == 0) {
    head_dim = s[Dim::width] / heads;
    if (s[Dim::width] % heads != 0)
      config.reject(kWidthKeys, fmt::format("{}", s[Dim::width]),
                    fmt::format("a multiple of {} heads", heads));
  }
  s.set_heads(heads, kv_heads, head_dim);
  if (config.has("kv_lora_rank")) {
    const std::int64_t rope = required(config, "qk_rope_head_dim");
    s.set(Dim::latent_q, size(config, "q_lora_rank"));
    s.set(Dim::latent_kv, required(config, "kv_lora_rank"));
    s.set(Dim::latent_kv_rope, s[Dim::latent_kv] + rope);
    s.set(Dim::nope, required(config, "qk_nope_head_dim"));
    s.set(Dim::v_dim, required(config, "v_head_dim"));
    s.set(Dim::q, heads * (s[Dim::nope] + rope));
    s.set(Dim::latent_up, heads * (s[Dim::nope] + s[Dim::v_dim]));
    s.set(Dim::attended, heads * s[Dim::v_dim]);
  }
  s.set(Dim::ff, size(config, kFeedForwardKeys));
  s.set(Dim::experts, size(config, kExpertsKeys));
  s.set(Dim::leading_dense, size(config, kLeadingDenseKeys));
  const std::int64_t expert_ff = size(config, "moe_intermediate_size");
  s.set(Dim::expert_ff, expert_ff != 0 ? expert_ff : s[Dim::ff]);
  const std::int64_t shared_ff = size(config, "shared_expert_intermediate_size|shared_intermediate_size");
  s.set(Dim::shared_ff, shared_ff != 0 ? shared_ff : size(config, kSharedExpertsKeys) * s[Dim::expert_ff]);
  s.set(Dim::ff2, 2 * s[Dim::ff]);
  s.set(Dim::expert_ff2, 2 * s[Dim::expert_ff]);
  s.set(Dim::shared_ff2, 2 * s[Dim::shared_ff]);
  s.set(Dim::positions, size(config, kContextKeys));
  s.set(Dim::position_offset, size(config, "position_offset"));
  if (s[Dim::position_offset] > 0 && s[Dim::position_offset] >= s[Dim::positions])
    config.reject("pad_token_id", fmt::format("{}", s[Dim::position_offset] - 1),
                  fmt::format("one with positions behind it, of {}", s[Dim::positions]));
  s.set(Dim::types, size(config, "type_vocab_size"));
  s.set(Dim::per_layer_vocab, size(config, "vocab_size_per_layer_input"));
  s.set(Dim::altup_others, std::max<std::int64_t>(0, size(config, "altup_num_inputs") - 1));
  return s;
}

}  // namespace quipu::convert
