// Tables that families share, in the names of transformers' decoders.
#pragma once

#include "convert/family.hpp"
#include "convert/rows.hpp"

namespace quipu::convert {

inline constexpr Change kPlusOne{.added = 1};  // norms that multiply by 1 + w

inline const TensorRule kTrunk[] = {
    {"embed_tokens", "token_embd", {Dim::vocab, Dim::width}},
    {"norm", "output_norm", {Dim::width}},
    {"/lm_head", "output", {Dim::vocab, Dim::width}, Presence::optional},
};
inline const TensorRule kPreNorms[] = {
    {"layers.{}.input_layernorm", "blk.{}.attn_norm", {Dim::width}},
    {"layers.{}.post_attention_layernorm", "blk.{}.ffn_norm", {Dim::width}},
};
/// The feed-forward's norm under another name.
inline const TensorRule kNormsBehindAttention[] = {
    {"layers.{}.input_layernorm", "blk.{}.attn_norm", {Dim::width}},
    {"layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm", {Dim::width}},
};
inline const TensorRule kAttention[] = {
    {"layers.{}.self_attn.q_proj", "blk.{}.attn_q", {Dim::q, Dim::width}},
    {"layers.{}.self_attn.k_proj", "blk.{}.attn_k", {Dim::kv, Dim::width}},
    {"layers.{}.self_attn.v_proj", "blk.{}.attn_v", {Dim::kv, Dim::width}},
    {"layers.{}.self_attn.o_proj", "blk.{}.attn_output", {Dim::width, Dim::q}},
};
/// Queries and keys with rotary pairs as neighbours.
inline const TensorRule kPairedAttention[] = {
    {"layers.{}.self_attn.q_proj",
     "blk.{}.attn_q",
     {Dim::q, Dim::width},
     Presence::required,
     {.rows = rows::paired_queries}},
    {"layers.{}.self_attn.k_proj",
     "blk.{}.attn_k",
     {Dim::kv, Dim::width},
     Presence::required,
     {.rows = rows::paired_keys}},
    {"layers.{}.self_attn.v_proj", "blk.{}.attn_v", {Dim::kv, Dim::width}},
    {"layers.{}.self_attn.o_proj", "blk.{}.attn_output", {Dim::width, Dim::q}},
};
/// Norms of each head's queries and keys.
inline const TensorRule kHeadNorms[] = {
    {"layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm", {Dim::head_dim}},
    {"layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm", {Dim::head_dim}},
};
inline const TensorRule kHunyuanNorms[] = {
    {"layers.{}.self_attn.query_layernorm", "blk.{}.attn_q_norm", {Dim::head_dim}},
    {"layers.{}.self_attn.key_layernorm", "blk.{}.attn_k_norm", {Dim::head_dim}},
};
/// Norms of all queries and all keys.
inline const TensorRule kWideNorms[] = {
    {"layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm", {Dim::q}},
    {"layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm", {Dim::kv}},
};
inline const TensorRule kGatedFeedForward[] = {
    {"layers.{}.mlp.gate_proj", "blk.{}.ffn_gate", {Dim::ff, Dim::width}, Presence::dense},
    {"layers.{}.mlp.up_proj", "blk.{}.ffn_up", {Dim::ff, Dim::width}, Presence::dense},
    {"layers.{}.mlp.down_proj", "blk.{}.ffn_down", {Dim::width, Dim::ff}, Presence::dense},
};
inline const TensorRule kPlainFeedForward[] = {
    {"layers.{}.mlp.up_proj", "blk.{}.ffn_up", {Dim::ff, Dim::width}},
    {"layers.{}.mlp.down_proj", "blk.{}.ffn_down", {Dim::width, Dim::ff}},
};
/// Experts one by one, or all in two tensors as newer versions of transformers save them.
inline const TensorRule kExperts[] = {
    {"layers.{}.mlp.gate", "blk.{}.ffn_gate_inp", {Dim::experts, Dim::width}, Presence::sparse},
    {"layers.{}.mlp.experts.{e}.gate_proj",
     "blk.{}.ffn_gate_exps",
     {Dim::expert_ff, Dim::width},
     Presence::sparse},
    {"layers.{}.mlp.experts.{e}.up_proj",
     "blk.{}.ffn_up_exps",
     {Dim::expert_ff, Dim::width},
     Presence::sparse},
    {"layers.{}.mlp.experts.{e}.down_proj",
     "blk.{}.ffn_down_exps",
     {Dim::width, Dim::expert_ff},
     Presence::sparse},
    {"layers.{}.mlp.experts.gate_up_proj",
     "blk.{}.ffn_gate_exps.weight",
     {Dim::experts, Dim::expert_ff2, Dim::width},
     Presence::sparse,
     {.rows = rows::expert_gates, .target = {Dim::experts, Dim::expert_ff, Dim::width}}},
    {"layers.{}.mlp.experts.gate_up_proj",
     "blk.{}.ffn_up_exps.weight",
     {Dim::experts, Dim::expert_ff2, Dim::width},
     Presence::sparse,
     {.rows = rows::expert_ups, .target = {Dim::experts, Dim::expert_ff, Dim::width}}},
    {"layers.{}.mlp.experts.down_proj",
     "blk.{}.ffn_down_exps.weight",
     {Dim::experts, Dim::width, Dim::expert_ff},
     Presence::sparse},
};
inline const TensorRule kMixtralExperts[] = {
    {"layers.{}.block_sparse_moe.gate", "blk.{}.ffn_gate_inp", {Dim::experts, Dim::width}, Presence::sparse},
    {"layers.{}.block_sparse_moe.experts.{e}.w1",
     "blk.{}.ffn_gate_exps",
     {Dim::expert_ff, Dim::width},
     Presence::sparse},
    {"layers.{}.block_sparse_moe.experts.{e}.w3",
     "blk.{}.ffn_up_exps",
     {Dim::expert_ff, Dim::width},
     Presence::sparse},
    {"layers.{}.block_sparse_moe.experts.{e}.w2",
     "blk.{}.ffn_down_exps",
     {Dim::width, Dim::expert_ff},
     Presence::sparse},
};
/// An expert that all tokens use, behind a gate of its own.
inline const TensorRule kSharedExpert[] = {
    {"layers.{}.mlp.shared_expert_gate",
     "blk.{}.ffn_gate_inp_shexp",
     {Dim::one, Dim::width},
     Presence::sparse},
    {"layers.{}.mlp.shared_expert.gate_proj",
     "blk.{}.ffn_gate_shexp",
     {Dim::shared_ff, Dim::width},
     Presence::sparse},
    {"layers.{}.mlp.shared_expert.up_proj",
     "blk.{}.ffn_up_shexp",
     {Dim::shared_ff, Dim::width},
     Presence::sparse},
    {"layers.{}.mlp.shared_expert.down_proj",
     "blk.{}.ffn_down_shexp",
     {Dim::width, Dim::shared_ff},
     Presence::sparse},
};
/// Experts that all tokens use, as one that is as wide as all of them.
inline const TensorRule kSharedExperts[] = {
    {"layers.{}.mlp.shared_experts.gate_proj",
     "blk.{}.ffn_gate_shexp",
     {Dim::shared_ff, Dim::width},
     Presence::sparse},
    {"layers.{}.mlp.shared_experts.up_proj",
     "blk.{}.ffn_up_shexp",
     {Dim::shared_ff, Dim::width},
     Presence::sparse},
    {"layers.{}.mlp.shared_experts.down_proj",
     "blk.{}.ffn_down_shexp",
     {Dim::width, Dim::shared_ff},
     Presence::sparse},
};

inline const std::vector<KeyRule> kRenormalised = {{"norm_topk_prob", "expert_weights_norm", Kind::flag}};
inline void sigmoid_scores(JsonFile& config) { config.set_default("scoring_func", "sigmoid"); }

inline constexpr KeyRule kSlidingWindow{"sliding_window", "attention.sliding_window"};

/// `attention.sliding_window_pattern` from `layer_types`: true where the window holds. `period`: readers take
/// every period-th layer as one without a window where the key is absent, and it is left out then; 0: they
/// want the key.
void add_window_pattern(Job& job, std::size_t period);

}  // namespace quipu::convert
