// A loaded model: file, hyperparameters, tokenizer, graph.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "formats/gguf/gguf.hpp"
#include "graph/graph.hpp"
#include "text/chat_template.hpp"
#include "text/tokenizer.hpp"

namespace quipu::models {

enum class RopeScalingType { none, linear, ntk, yarn, longrope };

/// From the file, each overridable by the user (`--rope-scaling`, `--rope-scale`, `--rope-freq-base` …).
struct RopeScaling {
  RopeScalingType type = RopeScalingType::none;
  double factor = 1.0;  ///< context is `factor` times original_context
  std::uint32_t original_context = 0;
  double extrapolation_factor = 1.0;  ///< YaRN ext_factor
  double attention_factor = 1.0;      ///< YaRN attn_factor
  double beta_fast = 32.0, beta_slow = 1.0;
  double log_multiplier = 0;  ///< yarn_log_multiplier (DeepSeek): temperature 1 + log_multiplier ln(factor)
  bool long_factors = false;  ///< longrope: the factors for contexts beyond the original one
  bool whole_pairs = true;    ///< the ramp begins and ends at whole pairs, as in the paper's code
};

/// What the user may override. Fields left empty keep the file's value. A factor without a type, on a file
/// that has no scaling, means linear. Numbers are rounded to float, the precision of a GGUF file, so that a
/// setting gives the same bytes whether it comes from the file or from here.
struct RopeOverrides {
  std::optional<RopeScalingType> type;
  std::optional<double> factor;
  std::optional<double> freq_base;
  std::optional<std::uint32_t> original_context;
  std::optional<double> extrapolation_factor, attention_factor, beta_fast, beta_slow;
};

/// Mixture of experts (keys `expert_*`).
struct ExpertSettings {
  std::uint32_t count = 0, used = 0;  ///< 0: dense
  std::uint32_t hidden = 0;           ///< feed-forward width of one; 0: feed_forward
  std::uint32_t leading_dense = 0;    ///< first blocks without experts
  std::uint32_t step = 1;             ///< every step-th block has experts
  std::uint32_t groups = 0, groups_used = 0;
  std::uint32_t gating =
      0;  ///< expert_gating_func: 1 softmax, 2 sigmoid, 3 softmax of the chosen; 0: not stated
  std::optional<bool> renormalise;
  float weights_scale = 0;  ///< 0: none
};

/// Multi-head latent attention (DeepSeek-V2).
struct LatentSettings {
  std::uint32_t q_rank = 0, kv_rank = 0;
  std::uint32_t key_dim = 0, value_dim = 0;  ///< of a head; 0: key_dim, value_dim of the cache
};

/// How the rows of a text become what a caller asks for; the numbers are those of `pooling_type`.
enum class Pooling : std::uint8_t {
  none,  ///< a vector for each token
  mean,
  cls,   ///< the first token's
  last,  ///< the last token's
  rank,  ///< the scores of the classification head
};
std::string_view to_string(Pooling pooling);
std::optional<Pooling> find_pooling(std::string_view name);

/// Read from `<architecture>.*` keys, all validated. Per-layer values where files may give arrays.
struct Hyperparameters {
  std::string architecture;
  std::uint32_t layers = 0;
  std::uint32_t embedding = 0;  ///< width of the residual stream
  std::uint32_t vocab = 0;
  std::uint32_t trained_context = 0;  ///< as the file says, after rope scaling (YaRN: factor * original)
  std::vector<std::uint32_t> heads, kv_heads, feed_forward;  ///< [layers]
  std::uint32_t key_dim = 0, value_dim = 0;
  std::uint32_t rope_dims = 0;
  double rope_freq_base = 10000.0;
  RopeScaling rope_scaling;
  float norm_eps = 0;
  std::uint32_t sliding_window = 0;  ///< positions a token attends to, itself included; 0: all
  bool states_window = false;        ///< the file has attention.sliding_window, be it 0
  /// attention.sliding_window_pattern. A number n: all but every n-th block have the window; an array: one
  /// flag a block. Empty: the architecture's own rule.
  std::vector<bool> windowed;
  double rope_freq_base_windowed = 0;  ///< of blocks with a window; 0: rope_freq_base
  /// Of blocks with a window, by `windowed`; 0: as the others.
  std::uint32_t key_dim_windowed = 0, value_dim_windowed = 0, rope_dims_windowed = 0;
  std::uint32_t shared_kv_layers = 0;  ///< so many blocks at the end read keys and values of earlier ones
  std::uint32_t per_layer_width = 0;   ///< of the embeddings that blocks have of their own; 0: none
  std::uint32_t altup_inputs = 0, altup_active = 0;
  std::vector<double> sparsity;  ///< activation_sparsity_scale, [layers]; -infinity: the block is dense
  // Factors and caps; 0: none.
  float embedding_scale = 0, residual_scale = 0, attention_scale = 0, logit_scale = 0;
  float attention_soft_cap = 0, final_soft_cap = 0;
  float clamp_qkv = 0, alibi_max_bias = 0;
  float temperature_scale = 0;           ///< attention.temperature_scale
  std::uint32_t temperature_length = 0;  ///< attention.temperature_length; 0: not stated
  /// Encoder-decoder models: blocks of the decoder (0: as many as the encoder has), the token it begins with.
  std::uint32_t decoder_layers = 0;
  std::int32_t decoder_start = 0;
  /// Not of the file: the graph is that of the encoder, which stores what the decoder reads.
  bool encodes = false;
  struct Xielu {
    std::vector<double> alpha_p, alpha_n, beta, eps;  ///< [layers], or empty
  } xielu;
  bool parallel_residual = true;        ///< use_parallel_residual
  bool causal = true;                   ///< attention.causal; encoders: false unless the file says otherwise
  std::uint32_t window_period = 0;      ///< attention.sliding_window_pattern, when it is a number
  std::string activation;               ///< hidden_act; empty: the architecture's own
  std::optional<Pooling> pooling;       ///< pooling_type
  Pooling head_pooling = Pooling::cls;  ///< of what the classification head reads (classifier.pooling_type)
  std::vector<std::string> labels;      ///< of the classification head's scores; may be empty
  /// Not of the file: the graph shall give vectors or scores, so pooled. None: logits.
  std::optional<Pooling> vectors;
  ExpertSettings experts;
  LatentSettings latent;
};

/// Reads and validates the `<architecture>.*` keys and applies the overrides. Throws `Error`: bad_file or
/// unsupported with file and key, what was found and what was expected; invalid_argument for an override. An
/// override without effect, or a key that contradicts another, adds a sentence to `warnings`.
Hyperparameters read_hyperparameters(const gguf::File& file, std::string_view architecture,
                                     const RopeOverrides& overrides, std::vector<std::string>& warnings);

struct LoadOptions {
  MappedFile::Mode mode = MappedFile::Mode::map;
  RopeOverrides rope;
};

/// Immutable after load; shared by all engines that use it.
class Model {
 public:
  /// Throws `Error`: a file that is no model, an unknown architecture (named, with the list of supported
  /// ones), missing or misshapen tensors, unusable settings, a tokenizer that disagrees with the embedding.
  static std::shared_ptr<const Model> load(const std::filesystem::path& path,
                                           const LoadOptions& options = {});

  /// Without the arrays of the vocabulary: those are the tokenizer's.
  const gguf::File& file() const { return file_; }
  const Hyperparameters& hyperparameters() const { return hyper_; }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  /// Null when the model has no chat template. Throws `Error` when the file's template is not usable: the
  /// model itself loads all the same.
  const text::ChatTemplate* chat_template() const;
  /// The graph of one step, to logits; weights are views into the file. Of a model that gives no text, to the
  /// vector of each row.
  graph::Graph build_graph() const;
  /// The graph to the vectors of whole texts, one an output; the output of a text is its last row. With
  /// `rank`: to its scores. Throws `Error` (unsupported) for `rank` on a model without a classification head.
  graph::Graph build_vector_graph(Pooling pooling) const;
  /// Of an encoder-decoder model: what encodes a prompt, whole, and stores what `build_graph`'s reads of it
  /// (graph::Reach::encoded). Throws `Error` (internal) for others.
  graph::Graph build_encoder_graph() const;
  bool has_prompt_encoder() const;
  /// Positions that a prompt and its answer are trained for: the context, which each side of an
  /// encoder-decoder model has for itself.
  std::int64_t trained_positions() const;
  /// False for encoders and other models whose tokens see what follows them.
  bool gives_text() const;
  bool has_classifier() const;
  /// 64-bit digest of hyperparameters and a sample of the weights; state files carry it.
  std::uint64_t fingerprint() const { return fingerprint_; }
  std::uint64_t weight_bytes() const { return weight_bytes_; }
  std::uint64_t parameters() const { return parameters_; }
  /// "llama 135M Q4_1": for people.
  std::string description() const;
  /// What loading had to say aloud (also logged): overrides without effect, tensors that are not used.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  graph::Graph build(std::optional<Pooling> vectors, std::set<std::string, std::less<>>* used,
                     bool encodes = false) const;

  gguf::File file_;
  Hyperparameters hyper_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::unique_ptr<text::ChatTemplate> chat_template_;
  std::optional<Error> chat_template_error_;
  std::vector<std::string> warnings_;
  std::uint64_t fingerprint_ = 0, weight_bytes_ = 0, parameters_ = 0;
};

/// Weights by name, with the shape each must have.
class WeightSource {
 public:
  /// `used`, if given, collects the names of the tensors handed out.
  explicit WeightSource(const gguf::File& file, std::set<std::string, std::less<>>* used = nullptr)
      : file_(&file), used_(used) {}
  /// Required tensor of exactly this GGUF-order shape (trailing ones may be left out). Throws `Error`
  /// (bad_file) that names the tensor, the shape found and the shape expected, and refuses integer dtypes.
  TensorView get(std::string_view name, std::initializer_list<std::int64_t> shape) const;
  /// Elements of dimension `dimension` of a tensor; 0 when it is absent. For sizes that only the weights
  /// state.
  std::int64_t size(std::string_view name, std::size_t dimension) const;
  /// Nothing when absent; still checked when present.
  std::optional<TensorView> find(std::string_view name, std::initializer_list<std::int64_t> shape) const;

 private:
  const gguf::File* file_;
  std::set<std::string, std::less<>>* used_;
};

/// One architecture family: one file, one row in registry.cpp.
struct Architecture {
  std::string_view name;  ///< general.architecture
  graph::Graph (*build)(const Hyperparameters& hyper, const WeightSource& weights);
  bool encoder = false;         ///< it gives vectors, and has no output layer
  bool prompt_encoder = false;  ///< an encoder reads the prompt, a decoder goes on from it
};
const Architecture* find_architecture(std::string_view name);
std::vector<std::string_view> architecture_names();

/// Rotation per position of each pair: rope_dims / 2 values, scaling and per-pair factors (rope_freqs.weight:
/// divisors, as llama3 scaling needs them) applied. Throws `Error` (bad_file) for a factor that is not a
/// positive number.
struct RopeFrequencies {
  std::shared_ptr<const std::vector<double>> inv_freq;
  float magnitude = 1.0f;
};
RopeFrequencies rope_frequencies(const Hyperparameters& hyper, const std::optional<TensorView>& factors);

}  // namespace quipu::models
