// LoRA adapters of the tiny model, made on the spot.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/philox.hpp"
#include "models/adapter.hpp"
#include "tiny_model.hpp"

namespace quipu::test {

/// A random adapter for every attention and feed-forward product of the tiny model.
inline std::shared_ptr<const models::Adapter> random_adapter(const models::Model& model, std::uint64_t seed,
                                                             std::int64_t rank) {
  std::deque<std::vector<float>> values;
  std::vector<TensorView> tensors;
  const auto add = [&](const std::string& name, std::int64_t width, std::int64_t rows) {
    std::vector<float>& v = values.emplace_back(static_cast<std::size_t>(width * rows));
    for (std::size_t i = 0; i < v.size(); ++i)
      v[i] = static_cast<float>(philox_uniform(seed + 100 * tensors.size(), i) - 0.5);
    tensors.push_back(
        {name, DType::f32, {width, rows, 1, 1}, reinterpret_cast<const std::byte*>(values.back().data())});
  };
  for (const TensorView& weight : model.file().tensors()) {
    if (weight.name.find("attn_norm") != std::string::npos ||
        weight.name.find("ffn_norm") != std::string::npos || !weight.name.starts_with("blk."))
      continue;
    add(weight.name + ".lora_a", weight.shape[0], rank);
    add(weight.name + ".lora_b", rank, weight.shape[1]);
  }
  gguf::Metadata metadata;
  metadata.set("general.type", gguf::Value::of_string("adapter"));
  metadata.set("general.architecture", gguf::Value::of_string("llama"));
  metadata.set("adapter.type", gguf::Value::of_string("lora"));
  metadata.set("adapter.lora.alpha", gguf::Value::of_f32(2));
  const TemporaryFolder folder;
  gguf::write(folder / "adapter.gguf", metadata, tensors);
  return models::Adapter::load(folder / "adapter.gguf", model);  // stays mapped
}

}  // namespace quipu::test
