// Reader of safetensors files and of folders of them. Source: the format description in the safetensors
// repository (README.md, "Format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/mapped_file.hpp"
#include "tensor/dtype.hpp"

namespace quipu::safetensors {

/// An element type of the format.
struct Type {
  std::string_view name;  ///< "BF16"
  std::uint32_t bytes;
  std::optional<DType> dtype;  ///< the same type in quipu; none for those that no GGUF file holds
};
/// Null when the format has no type of this name.
const Type* find_type(std::string_view name);

/// A named array in the file's bytes: little-endian, row-major, `shape` outermost dimension first (the
/// reverse of GGUF's order), empty for a single number.
struct Tensor {
  std::string name;
  const Type* type = nullptr;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  std::uint32_t shard = 0;  ///< index into the file's names

  std::int64_t elements() const;
};
/// "[32, 16]".
std::string shape_text(std::span<const std::int64_t> shape);

struct Entry {
  std::string key, value;
};

/// One file, or all shards of a folder. Everything is checked when it is opened: types, shapes, products,
/// offsets, overlaps and gaps. Views live as long as the object.
class File {
 public:
  /// Throws `Error`: not_found, io for the path, bad_file for contents, with file and tensor.
  static File open(const std::filesystem::path& path, MappedFile::Mode mode = MappedFile::Mode::map);
  /// The weights of a Hugging Face folder: `model.safetensors`, or the shards that
  /// `model.safetensors.index.json` names. A folder with pickled weights only is refused by name.
  static File open_folder(const std::filesystem::path& folder, MappedFile::Mode mode = MappedFile::Mode::map);
  /// Parses bytes in memory (tests, fuzzing); they must outlive the result.
  static File parse(std::span<const std::byte> bytes, std::string name);

  /// Sorted by name.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor* find(std::string_view name) const;
  /// `__metadata__` of the first shard.
  const std::vector<Entry>& metadata() const { return metadata_; }
  /// The file that holds the tensor, for messages.
  const std::string& file_of(const Tensor& tensor) const { return names_[tensor.shard]; }
  /// What was opened: the file or the folder.
  const std::string& name() const { return name_; }
  const std::vector<std::shared_ptr<MappedFile>>& shards() const { return shards_; }

 private:
  std::string name_;
  std::vector<std::string> names_;
  std::vector<Tensor> tensors_;
  std::vector<Entry> metadata_;
  std::vector<std::shared_ptr<MappedFile>> shards_;
};

}  // namespace quipu::safetensors
