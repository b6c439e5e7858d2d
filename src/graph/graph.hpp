// The computation of one model step: transformer-sized ops over [rows, width] float values.
//
// A graph is built once per model and reused for every batch: the number of rows of a value is symbolic
// (`Rows`), so nothing in it depends on how many tokens a step has. Shapes are checked when an op is added;
// kernels neither check nor fail.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tensor/tensor.hpp"

namespace quipu::graph {

/// How many rows a value has in a step.
enum class Rows : std::uint8_t {
  tokens,   ///< one per token of the batch
  outputs,  ///< one per token whose output is asked for
};

/// Handle of a value of one graph.
struct Value {
  std::uint32_t id = UINT32_MAX;
  bool operator==(const Value&) const = default;
};

struct ValueInfo {
  Rows rows;
  std::int64_t width;
};

enum class Activation : std::uint8_t { silu, gelu, gelu_tanh, gelu_quick, relu, relu_squared, sigmoid, tanh };

// ---- ops: one struct each; inputs first, then constants. Weights are views that must outlive the graph.
// ----

/// out[t] = row tokens[t] of `weight` (shape [width, vocab]), decoded to float.
struct Embed {
  TensorView weight;
};
/// out[t] = row position(t) of `weight` (shape [width, positions]), decoded to float: learned positions.
struct EmbedPositions {
  TensorView weight;
};
/// out[t] = row types[t] of `weight` (shape [width, types]), decoded to float: which part of a pair of texts
/// a token belongs to. Source: Devlin et al. 2018 (segment embeddings).
struct EmbedTypes {
  TensorView weight;
};
/// out = x / sqrt(mean(x^2) + eps) * weight, over groups of `weight.width()` elements when the row is a
/// multiple of it (per-head norms). A weight of shape [group, groups] gives each group its own. Source: Zhang
/// & Sennrich 2019.
struct RmsNorm {
  Value x;
  TensorView weight;
  float eps;
};
/// out = (x - mean) / sqrt(var + eps) * weight + bias, over groups as in RmsNorm. Source: Ba et al. 2016.
struct LayerNorm {
  Value x;
  TensorView weight;
  std::optional<TensorView> bias;
  float eps;
};
/// out[t, n] = sum_k x[t, k] * weight[n, k] (+ bias[n]); weight shape [K, N], any decodable dtype.
struct Linear {
  Value x;
  TensorView weight;
  std::optional<TensorView> bias;
};
/// Rotary position embedding on `heads` heads of `head_dim`; 2 * inv_freq.size() elements of each head, from
/// element `first` on, turn by position * inv_freq[i], the rest pass through; the turned ones are also
/// multiplied by `magnitude` (YaRN). Source: Su et al. 2021; Peng et al. 2023.
struct Rope {
  Value x;
  std::int64_t heads, head_dim;
  bool neox;  ///< pairs (i, i + n/2); false: pairs (2i, 2i + 1), the order of llama-architecture GGUF files
  std::shared_ptr<const std::vector<double>> inv_freq;
  float magnitude = 1.0f;
  std::int64_t first = 0;
};
/// Which positions of a sequence an attention is about: all, those that an encoder filled
/// (SequenceRows::encoded), or those behind them.
enum class Reach : std::uint8_t { all, encoded, decoded };
/// Causal attention over the sequence's cache: stores this step's k and v in cache layer `layer`, then
/// out[t, h] = sum_i softmax_i(scale * q[t, h] . k_i) v_i over positions i <= position(t) of the same
/// sequence. q: [tokens, heads * head_dim], k: [tokens, kv_heads * head_dim], v: [tokens, kv_heads * v_dim].
/// Not causal: over all positions of the sequence, which the step then brings whole; a window reaches
/// window / 2 positions to either side, and ALiBi counts the distance either way.
struct Attention {
  Value q, k, v;
  std::int32_t layer;
  std::int64_t heads, kv_heads, head_dim, v_dim;
  float scale;
  std::int64_t window = 0;  ///< > 0: only the last `window` positions, the own one included
  float soft_cap = 0;       ///< > 0: scores become cap * tanh(score / cap)
  std::optional<TensorView> sinks = std::nullopt;  ///< [heads] logits that join the softmax without a value
  float alibi_max_bias = 0;                        ///< > 0: ALiBi slopes as in Press et al. 2021
  bool causal = true;
  /// There is no k and no v: the layer's keys and values are those that an earlier attention of this graph
  /// stored, or, with Reach::encoded, another graph. Source: Gemma Team 2025 (Gemma 3n: layers that share).
  bool stored = false;
  std::int64_t chunk = 0;  ///< > 0: only positions of the own run of `chunk` positions (Meta 2025, Llama 4)
  /// [heads, buckets] what is added to a score by how far apart its positions are; the last bucket begins at
  /// `max_distance` positions. Source: Raffel et al. 2019 (T5).
  std::optional<TensorView> distance_bias = std::nullopt;
  std::int64_t max_distance = 0;
  Reach reach = Reach::all;  ///< Reach::encoded is not causal
};
/// Stores k and v in cache layer `layer`, for the attention of another graph. There is nothing in `out`, one
/// element a row.
struct StoreKv {
  Value k, v;
  std::int32_t layer;
  std::int64_t kv_heads, head_dim, v_dim;
};
/// out = activation(gate) * (up + up_shift); limit > 0 first clamps gate to at most limit and up to [-limit,
/// limit] (gpt-oss).
struct Glu {
  Value gate, up;
  Activation activation;
  float limit = 0, up_shift = 0;
};
struct Activate {
  Value x;
  Activation activation;
};
/// out = alpha_p x^2 + beta x for x > 0, else alpha_n (exp(min(x, eps)) - 1 - x) + beta x. Source: Huang 2024
/// (xIELU).
struct Xielu {
  Value x;
  float alpha_p, alpha_n, beta, eps;
};
/// out = max(0, x - mean - deviations * deviation), with the mean and the standard deviation of the row: of
/// normally distributed values a known share remains. Source: You et al. 2025 (Spark Transformer).
struct GaussianTopK {
  Value x;
  float deviations;
};
/// One factor a row: out[t] = 1 + scale ln(1 + floor((position(t) + offset) / length)), by which queries grow
/// beyond the length they were trained for. Source: Meta 2025 (Llama 4), Mistral 2025 (Ministral 3).
struct PositionTemperature {
  float scale;
  std::int64_t length;
  std::int64_t offset = 0;
};
struct Add {
  Value a, b;
};
/// Elementwise; a b of width 1 is a factor for each row.
struct Mul {
  Value a, b;
};
/// out = x * factor.
struct Scale {
  Value x;
  float factor;
};
/// Weighted sums of the `parts` equal parts of a row, as many as there are weights for: part i of out is the
/// sum over j of weights[t, i parts + j] times part j of x. Source: Baykal et al. 2023 (AltUp).
struct Mix {
  Value x, weights;
  std::int64_t parts;
};
/// Most adapters of a graph.
inline constexpr std::int32_t kMaxAdapters = 1024;
/// What a low-rank adapter adds, by each sequence's own measure: out[t] = x[t] + f scale delta[t], where f is
/// the factor that the row's sequence has for adapter number `adapter` (SequenceRows::adapters). Where f is
/// 0, out[t] = x[t] and delta is not read. Source: Hu et al. 2021 (LoRA).
struct AddAdapted {
  Value x, delta;
  std::int32_t adapter;
  float scale;
};
/// out[t] = x[t] + vector: steers every row in one direction (control vectors). Source: Zou et al. 2023.
struct AddVector {
  Value x;
  TensorView vector;
};
/// out[t] = x[t] * vector, elementwise.
struct MulVector {
  Value x;
  TensorView vector;
};
/// Elements [first, first + count) of each of `groups` equal parts of a row.
struct Slice {
  Value x;
  std::int64_t groups, first, count;
};
/// Each of `groups` equal parts of a's row, followed by the same part of b's, or (`shared`) by the whole of
/// b's.
struct Concat {
  Value a, b;
  std::int64_t groups;
  bool shared = false;
};
/// A matrix a head: out[t, h N + n] = sum_k x[t, h K + k] * weight[h, n, k]; weight shape [K, N, heads].
struct HeadLinear {
  Value x;
  TensorView weight;
};

/// Most experts of a layer: they are numbered in float values, and a row's scores fit a small buffer.
inline constexpr std::int64_t kMaxExperts = 4096;
/// How router logits become scores: over all experts, each on its own, or over the chosen ones alone.
/// SparseMixer (Liu et al. 2024): each choice weighs exp(0) against the experts that remain and are within 2
/// % of the best of them.
enum class Gating : std::uint8_t { softmax, sigmoid, softmax_of_chosen, sparse_mixer };
/// Chooses `used` experts a row: those of the highest score (+ bias[e], which takes part in the choice only),
/// the lower number first when equal. With groups > 1 only experts of the `groups_used` best groups (equal
/// runs of experts; a group counts for the sum of its `group_top` highest) may be chosen. out row: [used]
/// expert numbers, then [used] weights: the chosen scores, divided by their sum when `renormalise`, times
/// `scale`, times expert_scale[e]. Sources: Shazeer et al. 2017; DeepSeek-AI 2024 (V2: groups; V3: sigmoid,
/// bias).
struct MoeRoute {
  Value logits;
  std::optional<TensorView> bias;
  std::int64_t used;
  Gating gating = Gating::softmax;
  bool renormalise = false;
  float scale = 1;
  std::int64_t groups = 1, groups_used = 1, group_top = 1;
  std::optional<TensorView> expert_scale = std::nullopt;
};
/// The linear of every chosen expert: out[t, j N + n] = sum_k x_j[t, k] * weight[e, n, k] (+ bias[e, n]) for
/// the row's j-th expert e of `route`; x_j is the row of x, or its j-th part when x is `used` parts wide.
/// weight shape [K, N, experts], bias shape [N, experts].
struct MoeLinear {
  Value x, route;
  TensorView weight;
  std::optional<TensorView> bias;
};
/// out[t] = sum_j weight_j[t] * x_j[t], with the weights of `route` and the parts of x.
struct MoeCombine {
  Value x, route;
};
/// Rows of the tokens that have an output, in the order of `Step::output_rows`.
struct GatherOutputs {
  Value x;
};

/// One row an output, of the rows of its sequence up to the output's own: their mean, or the first of them.
struct Pool {
  enum class Kind : std::uint8_t { mean, first };
  Value x;
  Kind kind;
};

using Op = std::variant<Embed, EmbedPositions, EmbedTypes, RmsNorm, LayerNorm, Linear, Rope, Attention,
                        StoreKv, Glu, Activate, Xielu, GaussianTopK, PositionTemperature, Add, Mul, Scale,
                        Mix, AddAdapted, AddVector, MulVector, Slice, Concat, HeadLinear, MoeRoute, MoeLinear,
                        MoeCombine, GatherOutputs, Pool>;

/// "linear", "rms_norm"…: for messages and profiles.
std::string_view op_name(const Op& op);
/// Values an op reads.
std::vector<Value> op_inputs(const Op& op);
/// Replaces the values an op reads, in the order of `op_inputs`.
void set_op_inputs(Op& op, std::span<const Value> inputs);

struct Node {
  Op op;
  Value out;
  std::string name;  ///< e.g. "blk.3.ffn_down", for messages and profiles
  /// >= 0: only AddAdapted of this adapter reads the result, so that a step whose sequences do not use it may
  /// leave the node out.
  std::int32_t adapter = -1;
};

/// What one cache layer holds per position.
struct KvShape {
  std::int64_t kv_heads = 0, key_dim = 0, value_dim = 0;  ///< kv_heads 0: no attention op uses the layer
  bool operator==(const KvShape&) const = default;
};

/// Nodes in execution order (each after its inputs).
struct Graph {
  std::vector<Node> nodes;
  std::vector<ValueInfo> values;
  Value output;                          ///< [outputs, vocab] logits, or hidden states of an encoder
  std::int32_t kv_layers = 0;            ///< number of cache layers the attention ops use
  std::vector<KvShape> kv_shapes;        ///< [kv_layers]
  std::int64_t token_limit = INT32_MAX;  ///< tokens of a step are below this: rows of the smallest embedding
  std::int64_t position_limit = INT32_MAX;  ///< positions likewise: rows of learned positions
  std::int64_t type_limit = 1;              ///< token types likewise; 1: none but 0
  bool whole_sequences =
      false;                   ///< an op looks at all of a sequence: a step brings it from its first token on
  bool reads_encoded = false;  ///< an op reads what an encoder stored: SequenceRows::encoded is at least 1
  std::int32_t adapters = 0;   ///< AddAdapted numbers adapters below this
  const ValueInfo& value(Value v) const { return values[v.id]; }
};

/// The nodes that read each value, ascending, by the value's id.
std::vector<std::vector<std::size_t>> value_users(const Graph& graph);

/// Adds ops, checking shapes. Every method throws `Error` (internal for a model's mistake,
/// bad_file/unsupported for a weight of the wrong shape or dtype) that names the node.
class Builder {
 public:
  /// Names the nodes added from here on: "blk.0.attn_q". Set before each op or group of ops.
  Builder& at(std::string name);
  /// Adapter of the nodes added from here on (Node::adapter); -1: none.
  Builder& of_adapter(std::int32_t adapter);
  /// An op whatever it is; the methods below are the usual way.
  Value push(Op op);

  Value embed(TensorView weight);
  Value embed_positions(TensorView weight);
  Value embed_types(TensorView weight);
  Value rms_norm(Value x, TensorView weight, float eps);
  Value layer_norm(Value x, TensorView weight, std::optional<TensorView> bias, float eps);
  Value linear(Value x, TensorView weight, std::optional<TensorView> bias = std::nullopt);
  Value rope(Rope op);
  Value attention(Attention op);
  Value store_kv(StoreKv op);
  Value glu(Value gate, Value up, Activation activation, float limit = 0, float up_shift = 0);
  Value activate(Value x, Activation activation);
  Value xielu(Xielu op);
  Value gaussian_top_k(Value x, float deviations);
  Value position_temperature(float scale, std::int64_t length, std::int64_t offset = 0);
  Value add(Value a, Value b);
  Value mul(Value a, Value b);
  Value scale(Value x, float factor);
  Value mix(Value x, Value weights, std::int64_t parts);
  Value add_adapted(Value x, Value delta, std::int32_t adapter, float scale);
  Value add_vector(Value x, TensorView vector);
  Value mul_vector(Value x, TensorView vector);
  Value slice(Value x, std::int64_t groups, std::int64_t first, std::int64_t count);
  Value concat(Value a, Value b, std::int64_t groups, bool shared = false);
  Value head_linear(Value x, TensorView weight);
  Value moe_route(MoeRoute op);
  Value moe_linear(Value x, Value route, TensorView weight, std::optional<TensorView> bias = std::nullopt);
  Value moe_combine(Value x, Value route);
  Value gather_outputs(Value x);
  Value pool(Value x, Pool::Kind kind);
  /// Rows and width of a value added so far.
  const ValueInfo& info(Value v) const { return graph_.value(v); }
  /// Ends the graph; `output` must have Rows::outputs.
  Graph finish(Value output);

 private:
  void use_layer(std::int32_t layer, const KvShape& shape);

  Graph graph_;
  std::string name_;
  std::int32_t adapter_ = -1;
};

}  // namespace quipu::graph
