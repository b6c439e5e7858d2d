// The sizes of a model, by the names that tensor tables use.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "convert/json_file.hpp"

namespace quipu::convert {

/// An extent of a tensor. `any` is not checked; `none` ends a shape.
enum class Dim : std::uint8_t {
  none,
  any,
  one,
  layers,
  width,  ///< of the residual stream
  vocab,  ///< rows of the embedding
  heads,
  kv_heads,
  head_dim,
  q,    ///< heads * head_dim
  kv,   ///< kv_heads * head_dim
  qkv,  ///< q + 2 kv
  ff,   ///< of a dense feed-forward
  ff2,
  experts,
  leading_dense,  ///< first blocks, which have no experts
  expert_ff,
  expert_ff2,
  shared_ff,  ///< of the expert that every token uses
  shared_ff2,
  latent_q,         ///< ranks of multi-head latent attention: queries
  latent_kv,        ///< keys and values
  latent_kv_rope,   ///< and the part of a key that turns
  nope,             ///< the part of a head's key that does not turn
  v_dim,            ///< a head's value
  latent_up,        ///< heads * (nope + v_dim)
  attended,         ///< heads * v_dim
  positions,        ///< rows of a learned position embedding
  position_offset,  ///< the first of them that stands for a position
  types,            ///< rows of a segment embedding
  per_layer_vocab,  ///< rows of the embedding that blocks have of their own
  altup_others,     ///< streams beside the first (AltUp)
  count_,
};

class Sizes {
 public:
  /// From the usual keys of a configuration; what it leaves out is 0. Throws `Error`: a missing or absurd
  /// size, heads that do not divide the width.
  static Sizes read(const JsonFile& config);

  std::int64_t operator[](Dim dim) const { return values_[static_cast<std::size_t>(dim)]; }
  void set(Dim dim, std::int64_t value) { values_[static_cast<std::size_t>(dim)] = value; }
  /// heads, kv_heads, head_dim, and q, kv, qkv, which follow from them.
  void set_heads(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim);

 private:
  std::array<std::int64_t, static_cast<std::size_t>(Dim::count_)> values_{};
};

// The usual keys of config.json, with the names that older configurations use.
inline constexpr std::string_view kLayersKeys = "num_hidden_layers|n_layer|n_layers|num_layers";
inline constexpr std::string_view kWidthKeys = "hidden_size|n_embd|d_model|n_embed|dim";
inline constexpr std::string_view kHeadsKeys = "num_attention_heads|n_head|n_heads";
inline constexpr std::string_view kKvHeadsKeys = "num_key_value_heads|num_kv_heads|n_head_kv|n_kv_heads";
inline constexpr std::string_view kFeedForwardKeys = "intermediate_size|n_inner|ffn_dim|ffn_hidden_size";
inline constexpr std::string_view kContextKeys =
    "max_position_embeddings|n_positions|n_ctx|max_seq_len|max_sequence_length|seq_length";
inline constexpr std::string_view kExpertsKeys =
    "num_local_experts|num_experts|n_routed_experts|moe_num_experts";
inline constexpr std::string_view kSharedExpertsKeys =
    "n_shared_experts|num_shared_experts|moe_num_shared_experts";
inline constexpr std::string_view kLeadingDenseKeys =
    "first_k_dense_replace|first_last_k_dense_replace|moe_layer_start_index";
inline constexpr std::string_view kExpertsUsedKeys =
    "num_experts_per_tok|num_experts_per_token|top_k_experts|moe_topk|moe_k";

}  // namespace quipu::convert
