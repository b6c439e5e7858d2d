// Splits a model the way gguf-split does, for tests of models in several files.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "formats/gguf/gguf.hpp"
#include "formats/gguf/splits.hpp"
#include "temporary_folder.hpp"

namespace quipu::test {

inline gguf::Value split_value(std::uint64_t value) { return {gguf::ValueType::u16, value}; }

/// One shard with the given split keys and tensors; the first (number 0) carries all of `metadata`.
inline void write_shard(const std::filesystem::path& path, const gguf::Metadata& metadata,
                        std::span<const TensorView> tensors, std::uint64_t number, std::uint64_t count,
                        std::int64_t all_tensors) {
  gguf::Metadata own;
  if (number == 0) own = metadata;
  own.set(gguf::kSplitNumberKey, split_value(number));
  own.set(gguf::kSplitCountKey, split_value(count));
  own.set(gguf::kSplitTensorsKey, {gguf::ValueType::i32, all_tensors});
  gguf::write(path, own, tensors);
}

/// Writes FOLDER/STEM-00001-of-0000N.gguf …, `per_shard` tensors each (the last takes the rest).
inline std::vector<std::filesystem::path> write_shards(const std::filesystem::path& folder,
                                                       const std::string& stem,
                                                       const gguf::Metadata& metadata,
                                                       std::span<const TensorView> tensors,
                                                       std::uint32_t count) {
  const std::size_t per_shard = tensors.size() / count;
  std::vector<std::filesystem::path> paths;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::size_t first = i * per_shard;
    const std::size_t number = i + 1 == count ? tensors.size() - first : per_shard;
    paths.push_back(folder / gguf::split_file_name(stem, i + 1, count));
    write_shard(paths.back(), metadata, tensors.subspan(first, number), i, count,
                static_cast<std::int64_t>(tensors.size()));
  }
  return paths;
}

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace quipu::test
