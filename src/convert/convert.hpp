// A Hugging Face folder (config.json, safetensors, tokenizer files) as a GGUF model: written to a file by
// `quipu convert`, or used as it lies by `-m FOLDER`. What is converted and how: docs/convert.md.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "convert/tensor_source.hpp"
#include "core/mapped_file.hpp"
#include "formats/gguf/gguf.hpp"
#include "formats/safetensors/safetensors.hpp"

namespace quipu::convert {

/// True for a folder with a config.json.
bool is_model_folder(const std::filesystem::path& path);

struct Options {
  MappedFile::Mode mode = MappedFile::Mode::map;
  std::string pre;  ///< tokenizer.ggml.pre, instead of the one found from tokenizer.json
};

/// What a GGUF file of the folder would hold. Tensors point into the mapped shards, which live as long as the
/// object.
class Model {
 public:
  /// Throws `Error` that names file and key or tensor, what was found and what was expected: an unknown
  /// architecture (with near matches), missing, superfluous or misshapen tensors, rotary scaling that is not
  /// supported, pickled or cut weights, a tokenizer that does not fit.
  static Model open(const std::filesystem::path& folder, const Options& options = {});

  const std::string& name() const { return weights_.name(); }
  /// All keys but general.file_type and general.quantization_version.
  const gguf::Metadata& metadata() const { return metadata_; }
  const std::vector<TensorSource>& tensors() const { return tensors_; }
  std::vector<gguf::TensorInfo> tensor_infos() const;
  const std::vector<std::string>& warnings() const { return warnings_; }

  /// The model as an open file: matrices in their own type, in place where nothing changes, made in memory
  /// where rows move or values change. The same bytes as a converted file without --type.
  gguf::File as_file(int threads) const;

 private:
  safetensors::File weights_;
  gguf::Metadata metadata_;
  std::vector<TensorSource> tensors_;
  std::vector<std::string> warnings_;
};

/// A GGUF file, or a Hugging Face folder as one; what the folder had to say goes to `warnings`. Throws
/// `Error` as the two do.
gguf::File open_model(const std::filesystem::path& path, const gguf::OpenOptions& options = {},
                      std::vector<std::string>* warnings = nullptr);

/// general.file_type of a model whose matrices keep their own types: that of most of its values.
std::uint32_t own_file_type(std::span<const gguf::TensorInfo> tensors);

}  // namespace quipu::convert
