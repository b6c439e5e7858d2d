// Copies of a GGUF file with settings or tensors changed, for tests of loading.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/gguf/gguf.hpp"
#include "tiny_model.hpp"

namespace quipu::test {

/// A key with its new value; without a value the key is left out.
using Edit = std::pair<std::string, std::optional<gguf::Value>>;

inline gguf::Value u32(std::uint64_t v) { return {gguf::ValueType::u32, v}; }
inline gguf::Value i32(std::int64_t v) { return {gguf::ValueType::i32, v}; }
inline gguf::Value f32(double v) { return {gguf::ValueType::f32, v}; }
inline gguf::Value str(std::string v) { return {gguf::ValueType::string, std::move(v)}; }
inline gguf::Value u32s(std::vector<std::uint64_t> v) {
  return {gguf::ValueType::array, gguf::Array{gguf::ValueType::u32, std::move(v)}};
}

/// `tensors` may change the list of tensors (they point into the source while it runs).
inline void write_edited(const std::filesystem::path& from, const std::filesystem::path& to,
                         const std::vector<Edit>& edits,
                         const std::function<void(std::vector<TensorView>&)>& tensors = {}) {
  const gguf::File file = gguf::File::open(from);
  gguf::Metadata metadata;
  for (const auto& entry : file.metadata().entries()) metadata.set(entry.key, entry.value);
  gguf::Metadata kept;
  for (const Edit& edit : edits)
    if (edit.second) metadata.set(edit.first, *edit.second);
  for (const auto& entry : metadata.entries()) {
    bool dropped = false;
    for (const Edit& edit : edits) dropped = dropped || (edit.first == entry.key && !edit.second);
    if (!dropped) kept.set(entry.key, entry.value);
  }
  std::vector<TensorView> views = file.tensors();
  if (tensors) tensors(views);
  gguf::write(to, kept, views);
}

}  // namespace quipu::test
