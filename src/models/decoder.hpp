// Vocabulary for writing a decoder: the steps of its papers, named after the weights they use. An
// architecture's file puts them in order (docs/adding-a-model.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "models/model.hpp"

namespace quipu::models {

enum class Norm : std::uint8_t { rms, layer, layer_without_weights };

/// How queries and keys turn with their position.
struct Rotary {
  bool neox = true;  ///< pairs (i, i + n/2); false: neighbours (2i, 2i + 1)
  RopeFrequencies turns;
};

/// What differs between one attention and another; the rest (soft cap, sinks) comes from the file.
struct AttentionStyle {
  std::int64_t window = 0;  ///< positions a token sees, itself included; 0: all
  float scale = 0;          ///< of the scores; 0: attention.scale of the file, or 1 / sqrt(head size)
  std::int64_t chunk = 0;   ///< a token sees its own run of so many positions; 0: all
  /// The block whose keys and values are read, where this one has none (Block::shares).
  std::optional<std::uint32_t> keys_of = {};
  graph::Reach reach = graph::Reach::all;
  std::optional<TensorView> distance_bias = {};  ///< graph::Attention; distances end at 128
  std::string_view name = "attention", output = "attn_output";
  bool keeps_rows = false;  ///< all rows remain, in the last block too: what follows reads them
};

/// What differs between one mixture of experts and another.
struct ExpertStyle {
  graph::Gating gating = graph::Gating::softmax;
  bool renormalise = false;    ///< the chosen weights sum to one (before `scale`)
  float scale = 0;             ///< of the weights; 0: expert_weights_scale of the file, or 1
  std::int64_t group_top = 1;  ///< experts a group counts for, where the file has groups
  graph::Activation activation = graph::Activation::silu;
  float limit = 0, up_shift = 0;               ///< of the glu (graph::Glu)
  std::optional<graph::Value> routed_by = {};  ///< what the router reads; empty: what the experts read
  bool weighs_input = false;  ///< the weights multiply what the experts read, not what they give
};

class Decoder;

/// One block (layer) of a decoder.
class Block {
 public:
  Block(Decoder& decoder, std::uint32_t index);

  const std::uint32_t index;
  const bool last;
  const std::int64_t width, heads, kv_heads, key_dim, value_dim, hidden;

  /// The decoder's norm with blk.N.part.weight (and .bias), over the row or over heads of `size` elements
  /// each. `own`: each head has elements of its own in the weight, [size, heads].
  graph::Value norm(graph::Value x, std::string_view part, std::int64_t size = 0, bool own = false);
  /// x times blk.N.part.weight, plus blk.N.part.bias if the file has it.
  graph::Value linear(graph::Value x, std::string_view part, std::int64_t to);

  struct Heads {
    graph::Value q, k, v;
  };
  /// Projections attn_q, attn_k, attn_v, or attn_qkv that holds their rows one after the other.
  Heads qkv(graph::Value x);
  graph::Value rotate(graph::Value x, const Rotary& rotary);
  /// Attention over the sequence and attn_output. From the last block's on only the rows whose logits are
  /// wanted remain.
  graph::Value attend(const Heads& heads, const AttentionStyle& style = {});

  /// ffn_down(activation(ffn_gate(x)) * ffn_up(x)). `kind` follows the names: "_shexp" for shared experts.
  graph::Value gated(graph::Value x, graph::Activation activation = graph::Activation::silu,
                     std::string_view kind = "", std::int64_t hidden_width = 0);
  /// The same for files whose ffn_up holds the gate's rows before its own.
  graph::Value gated_fused(graph::Value x, graph::Activation activation = graph::Activation::silu);
  /// ffn_down(activation(ffn_up(x))).
  graph::Value mlp(graph::Value x, graph::Activation activation);
  /// The chosen experts' gated feed-forwards, weighted: ffn_gate_inp routes; ffn_gate_exps, ffn_up_exps (or
  /// both in ffn_gate_up_exps) and ffn_down_exps hold a matrix for each expert. Shared experts (ffn_*_shexp),
  /// which every token goes through, are added when the file has them, let through by the sigmoid of
  /// ffn_gate_inp_shexp if it has that.
  graph::Value experts(graph::Value x, const ExpertStyle& style);
  /// `experts` in blocks that have them, by leading_dense_block_count and interleave_moe_layer_step; `gated`
  /// in others.
  graph::Value experts_or_gated(graph::Value x, const ExpertStyle& style);

  /// The file's window for this block; 0 where every position is seen. Without a pattern in the file all but
  /// every `every`-th block have it (1: none, 0: all).
  std::int64_t window(std::uint32_t every) const;
  /// The block whose keys and values this one shares, if it is among the file's last ones that do: the last
  /// one of those before with a window like this one, or without one. `every` as in `window`.
  std::optional<std::uint32_t> shares(std::uint32_t every) const;
  /// Whether the file has blk.N.part.weight.
  bool has(std::string_view part, std::int64_t size) const;

  /// x + y, y times residual_scale if the file has one; x loses the rows that y has lost.
  graph::Value add(graph::Value x, graph::Value y, std::string_view part);
  /// x, of the last block only the rows whose logits are wanted (all, where a pooling reads all): for what
  /// stands beside the attention.
  graph::Value wanted(graph::Value x);

  /// The builder, set to name what comes next "blk.N.part".
  graph::Builder& at(std::string_view part);
  std::string name(std::string_view part) const;

 private:
  graph::Value chosen_experts(graph::Value x, const ExpertStyle& style);
  Decoder& decoder_;
};

class Decoder {
 public:
  Decoder(const Hyperparameters& hyper, const WeightSource& weights, Norm norm = Norm::rms)
      : hyper(hyper), weights(weights), norm_kind(norm) {}

  const Hyperparameters& hyper;
  const WeightSource& weights;
  const Norm norm_kind;
  std::string prefix;  ///< of the names of blocks and of output_norm: "dec."
  graph::Builder g;

  /// Rows of token_embd.weight, times `scale`; 0: embedding_scale of the file, or 1.
  graph::Value embed(float scale = 0);
  /// The file's rotary settings; per-pair factors (rope_freqs.weight, Llama 3.1) when it has them.
  Rotary rotary(bool neox) const;
  /// Of blocks with a window: the plain frequencies of rope.freq_base_swa, or of `base`.
  Rotary windowed_rotary(bool neox, double base) const;
  std::vector<Block> blocks();
  /// A norm named by its weight, which has `size` elements, or as many for each of `heads`.
  graph::Value norm(graph::Value x, const std::string& name, std::int64_t size, std::int64_t heads = 1);
  /// RMS norm without a weight, over heads of `size`.
  graph::Value unit(graph::Value x, const std::string& name, std::int64_t size);
  graph::Value linear(graph::Value x, const std::string& name, std::int64_t to);
  /// output_norm, then logits by output.weight, or by the embedding when the file has none, times `scale`,
  /// under the file's final soft cap; or `vectors`, if those are asked for.
  graph::Graph finish(graph::Value x, float scale = 1);
  /// The pooled rows, and what stands behind the pooling in the file: dense_2, dense_3, or the classification
  /// head (cls and its activation, cls.norm, cls.output).
  graph::Graph vectors(graph::Value x, graph::Activation head = graph::Activation::tanh);
  /// Row `type` of token_types.weight added to each token, if the file has it.
  graph::Value add_token_types(graph::Value x);
  /// Whether the pooling asked for reads every row, not the wanted ones only.
  bool pools_all_rows() const;
};

/// A vector of `size` equal values, which lives as long as the program.
TensorView constant(std::int64_t size, float value);
/// One matrix of a tensor that holds several.
TensorView matrix_of(const TensorView& weight, std::int64_t index);
/// The first element of a weight.
float first_of(const TensorView& weight);
/// Rows [first, first + count) of a matrix or vector of the file.
TensorView rows_of(const TensorView& weight, std::int64_t first, std::int64_t count);

/// For architectures that have dense feed-forwards only.
void refuse_experts(const Hyperparameters& h);

}  // namespace quipu::models
