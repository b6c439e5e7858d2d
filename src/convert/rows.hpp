// Orders of rows: which row of the checkpoint's tensor stands where in the GGUF file's.
#pragma once

#include <cstdint>
#include <vector>

#include "convert/sizes.hpp"

namespace quipu::convert::rows {

using Order = std::vector<std::int64_t>;

/// Rotary pairs as neighbours (2 i, 2 i + 1) instead of halves (i, i + n / 2), head by head: how llama's
/// files hold queries and keys.
Order paired_queries(const Sizes& sizes);
Order paired_keys(const Sizes& sizes);
/// Those keys in a tensor that holds all queries, all keys, all values.
Order paired_keys_behind_queries(const Sizes& sizes);

/// From [head][query, key, value][dim] to all queries, all keys, all values (GPT-NeoX, Bloom).
Order ungrouped_heads(const Sizes& sizes);
/// From [key-value head][its queries, key, value][dim] to all queries, all keys, all values (Falcon).
Order ungrouped_kv_heads(const Sizes& sizes);

/// From [key-value head][its queries, key, value][dim], rotary pairs as neighbours (InternLM2).
Order paired_queries_of_groups(const Sizes& sizes);
Order paired_keys_of_groups(const Sizes& sizes);
Order values_of_groups(const Sizes& sizes);

/// The values of a tensor that holds, head by head, the part of the key that does not turn and the value.
Order latent_values(const Sizes& sizes);

/// The queries, keys or values of a tensor that holds all three.
Order queries(const Sizes& sizes);
Order keys(const Sizes& sizes);
Order values(const Sizes& sizes);

/// The rows of an embedding of fewer tokens, then rows of zeros (-1); empty when there are enough.
Order padded_to_vocab(const Sizes& sizes);

/// Learned positions without those of the padding, which stand in front (RoBERTa).
Order positions_behind_padding(const Sizes& sizes);

/// The first or second half of the rows of each expert's gate_up matrix.
Order expert_gates(const Sizes& sizes);
Order expert_ups(const Sizes& sizes);
/// Gates and ups in turns: even and odd rows.
Order alternating_gates(const Sizes& sizes);
Order alternating_ups(const Sizes& sizes);
/// The same for the expert that all tokens use.
Order shared_gate(const Sizes& sizes);
Order shared_up(const Sizes& sizes);

}  // namespace quipu::convert::rows
