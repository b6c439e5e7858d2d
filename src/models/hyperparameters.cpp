#include <algorithm>
#include <cmath>

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

void read_rope_dims(const Keys& keys, Hyperparameters& h) {
  const auto dims = keys.try_count("rope.dimension_count", 2, kMaxHeadDim);
  if (dims && *dims > h.key_dim)
    keys.reject("rope.dimension_count", fmt::format("{}", *dims),
                fmt::format("at most the head size, {}", h.key_dim));
  h.rope_dims = dims.value_or(h.key_dim);
  if (h.rope_dims % 2 != 0)
    keys.reject(dims ? "rope.dimension_count" : "attention.key_length", fmt::format("{}", h.rope_dims),
                "an even number: rotary embedding turns pairs");
}

}  // namespace

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
  h.embedding = keys.count("embedding_length", 1, kMaxWidth);
  h.trained_context = keys.count("context_length", 1, UINT32_MAX);
  h.feed_forward = keys.per_layer("feed_forward_length", h.layers, 1, kMaxWidth);
  read_heads(keys, h);
  h.norm_eps = static_cast<float>(keys.number("attention.layer_norm_rms_epsilon", 0, 1, true));
  h.sliding_window = keys.try_count("attention.sliding_window", 0, UINT32_MAX).value_or(0);

  h.experts = keys.try_count("expert_count", 0, kMaxHeads).value_or(0);
  h.experts_used = keys.try_count("expert_used_count", 0, kMaxHeads).value_or(0);
  if (h.experts_used > h.experts)
    keys.reject("expert_used_count", fmt::format("{}", h.experts_used),
                fmt::format("at most {} = {}", keys.key("expert_count"), h.experts));

  read_rope_dims(keys, h);
  read_rope_settings(keys, overrides, h, warnings);

  h.vocab = static_cast<std::uint32_t>(
      std::min<std::size_t>(file.metadata().get_array("tokenizer.ggml.tokens").size(), UINT32_MAX));
  if (const auto stated = keys.try_count("vocab_size", 0, UINT32_MAX); stated && *stated != h.vocab)
    warnings.push_back(fmt::format("{} is {}, but the tokenizer has {} tokens; the tokens are taken",
                                   keys.key("vocab_size"), *stated, h.vocab));
  return h;
}

}  // namespace quipu::models
