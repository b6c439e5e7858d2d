// LoRA adapters as files: GGUF ones as they are, folders that PEFT saved in the names and row orders of the
// model's GGUF file. Source: the checkpoint format in PEFT's documentation.
#pragma once

#include <filesystem>

#include "convert/json_file.hpp"
#include "formats/gguf/gguf.hpp"
#include "formats/safetensors/safetensors.hpp"

namespace quipu::convert {

/// The adapter at `path` (a GGUF file, a PEFT folder, or the safetensors file in one) as a GGUF adapter for
/// `model`: "blk.0.attn_q.weight.lora_a" and ".lora_b", adapter.lora.alpha. Throws `Error` as the readers do,
/// and for what is no plain LoRA: DoRA, trained biases, whole layers (modules_to_save), pickled weights, a
/// module that the model's family has no name for.
gguf::File open_adapter(const std::filesystem::path& path, const gguf::File& model);

/// The same from an adapter_config.json and its tensors, whose bytes are copied.
gguf::File read_peft(const JsonFile& config, const safetensors::File& tensors, const gguf::File& model);

}  // namespace quipu::convert
