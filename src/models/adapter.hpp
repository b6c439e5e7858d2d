// Low-rank adapters (LoRA) and control vectors beside a model, and the graph that applies them: the weights
// of the model stay as they are, in the file and in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf/gguf.hpp"
#include "graph/graph.hpp"
#include "models/model.hpp"

namespace quipu::models {

/// y = W x becomes y = W x + scale * b (a x). For experts both hold a matrix for each.
struct LowRank {
  TensorView a;  ///< [K, rank(, experts)]; of the embedding [rank, vocab]
  TensorView b;  ///< [rank, N(, experts)]
  float scale;   ///< alpha / rank
};

/// A LoRA adapter that fits one model. Immutable; shared by all engines that use it.
class Adapter {
 public:
  /// Opens a GGUF adapter (general.type "adapter", as llama.cpp's convert_lora_to_gguf writes it) or a PEFT
  /// folder (adapter_config.json and adapter_model.safetensors). Throws `Error` that names file and tensor,
  /// what was found and what was expected: no adapter, another architecture, a tensor that the model has not,
  /// or has in another shape, a kind of adapter that low-rank products cannot express (DoRA, aLoRA, whole
  /// layers).
  static std::shared_ptr<const Adapter> load(const std::filesystem::path& path, const Model& model);
  /// The same from an open file.
  static std::shared_ptr<const Adapter> from_file(gguf::File file, const Model& model);

  const std::string& path() const { return path_; }
  /// By the weight they belong to: "blk.0.attn_q.weight".
  const std::map<std::string, LowRank, std::less<>>& parts() const { return parts_; }
  /// Null when the adapter leaves the weight alone.
  const LowRank* find(std::string_view weight) const;
  std::uint64_t bytes() const { return bytes_; }
  /// 64-bit digest of all its bytes.
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  void read(const Model& model);
  TensorView usable(const TensorView& tensor);

  std::string path_;
  gguf::File file_;
  std::map<std::string, LowRank, std::less<>> parts_;
  std::vector<std::unique_ptr<std::vector<float>>> decoded_;
  std::uint64_t bytes_ = 0, fingerprint_ = 0;
};

/// Directions added to the hidden state behind blocks, each times its file's scale, summed over files.
class ControlVector {
 public:
  struct Part {
    std::filesystem::path path;
    float scale = 1;
  };
  /// GGUF files of architecture "controlvector", whose tensors direction.N steer behind block N (from 1 on).
  /// `first` and `last`: the blocks that are steered; -1: all. Throws `Error`: no such file, a direction of
  /// another width than the model's, of a block it has not; blocks out of range.
  static std::shared_ptr<const ControlVector> load(std::span<const Part> parts, const Model& model,
                                                   std::int64_t first = -1, std::int64_t last = -1);
  /// Adds one open file's directions.
  void add(const gguf::File& file, float scale, const Hyperparameters& hyper);
  void keep_blocks(std::int64_t first, std::int64_t last);

  /// [embedding] of a block, or nothing.
  std::optional<TensorView> direction(std::uint32_t block) const;
  std::uint64_t fingerprint() const;

 private:
  std::map<std::uint32_t, std::vector<float>> directions_;
};

/// The graph of one step that also applies these: adapter i by the factor that a sequence gives it
/// (graph::SequenceRows::adapters). Throws `Error` (unsupported) when the architecture has no place for a
/// part.
graph::Graph with_adapters(const graph::Graph& plain, const Model& model,
                           std::span<const std::shared_ptr<const Adapter>> adapters,
                           const ControlVector* control);

}  // namespace quipu::models
