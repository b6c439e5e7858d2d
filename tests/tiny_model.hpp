// A llama-architecture GGUF of a few hundred KB with random weights, made on the spot: tests that need a
// model need no external file. The bytes are a pure function of the options.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/philox.hpp"
#include "formats/gguf/gguf.hpp"
#include "temporary_folder.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tensor.hpp"

namespace quipu::test {

struct TinyModelOptions {
  std::uint64_t seed = 1;
  std::uint32_t layers = 2;
  std::uint32_t embedding = 64;  ///< heads * head_dim; a multiple of 256 for K-quants
  std::uint32_t heads = 4, kv_heads = 2;
  std::uint32_t feed_forward = 128;
  std::uint32_t trained_context = 512;
  DType matrix_dtype = DType::f32;     ///< of all matrices but the two below
  DType embedding_dtype = DType::f32;  ///< token_embd and output
  bool tied = false;                   ///< no output.weight
  bool spm = false;  ///< SentencePiece vocabulary with byte fallback instead of byte-level BPE
  /// Extra metadata; replaces entries of the same key.
  std::vector<std::pair<std::string, gguf::Value>> extra;
};

namespace tiny {

inline gguf::Value uint(std::uint64_t v) { return {gguf::ValueType::u32, v}; }
inline gguf::Value number(double v) { return {gguf::ValueType::f32, v}; }
inline gguf::Value text(std::string v) { return {gguf::ValueType::string, std::move(v)}; }
inline gguf::Value flag(bool v) { return {gguf::ValueType::boolean, v}; }
inline gguf::Value strings(const std::vector<std::string>& v) { return gguf::Value::of_strings(v); }
inline gguf::Value integers(std::vector<std::int64_t> v) {
  return {gguf::ValueType::array, gguf::Array{gguf::ValueType::i32, std::move(v)}};
}
inline gguf::Value floats(std::vector<double> v) {
  return {gguf::ValueType::array, gguf::Array{gguf::ValueType::f32, std::move(v)}};
}

/// The GPT-2 byte alphabet: printable bytes stand for themselves, the others for U+0100 onwards in order.
/// Source: Radford et al. 2019, encoder of the released code.
inline std::string byte_letter(unsigned byte) {
  const auto printable = [](unsigned b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  unsigned code = byte;
  if (!printable(byte)) {
    code = 256;
    for (unsigned b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

/// Ids 0-255 are the bytes, 256 "he", 257 "ll", 258 "Ġt", 259 "Ġthe", then the control tokens.
inline void add_bpe_vocabulary(gguf::Metadata& metadata) {
  std::vector<std::string> tokens;
  for (unsigned b = 0; b < 256; ++b) tokens.push_back(byte_letter(b));
  const std::string space = byte_letter(' ');
  tokens.insert(tokens.end(), {"he", "ll", space + "t", space + "the"});
  std::vector<std::int64_t> types(tokens.size(), 1);
  tokens.insert(tokens.end(), {"<|endoftext|>", "<|im_start|>", "<|im_end|>"});
  types.insert(types.end(), 3, 3);
  const std::int64_t size = static_cast<std::int64_t>(tokens.size());
  metadata.set("tokenizer.ggml.model", text("gpt2"));
  metadata.set("tokenizer.ggml.pre", text("gpt-2"));
  metadata.set("tokenizer.ggml.tokens", strings(std::move(tokens)));
  metadata.set("tokenizer.ggml.token_type", integers(std::move(types)));
  metadata.set("tokenizer.ggml.merges", strings({"h e", "l l", space + " t", space + "t he"}));
  metadata.set("tokenizer.ggml.bos_token_id", uint(static_cast<std::uint64_t>(size - 3)));
  metadata.set("tokenizer.ggml.eos_token_id", uint(static_cast<std::uint64_t>(size - 1)));
  metadata.set("tokenizer.ggml.add_bos_token", flag(false));
}

/// Ids 0-2 are <unk> <s> </s>, 3-258 the bytes, then "▁" and the printable ASCII characters.
inline void add_spm_vocabulary(gguf::Metadata& metadata) {
  std::vector<std::string> tokens{"<unk>", "<s>", "</s>"};
  std::vector<std::int64_t> types{2, 3, 3};
  std::vector<double> scores(3, 0.0);
  for (unsigned b = 0; b < 256; ++b) {
    const char* hex = "0123456789ABCDEF";
    tokens.push_back(std::string("<0x") + hex[b >> 4] + hex[b & 15] + ">");
    types.push_back(6);
    scores.push_back(0.0);
  }
  const auto add = [&](std::string piece) {
    scores.push_back(-static_cast<double>(tokens.size()));
    types.push_back(1);
    tokens.push_back(std::move(piece));
  };
  add("\xE2\x96\x81t");
  add("\xE2\x96\x81");
  for (char c = '!'; c <= '~'; ++c) add(std::string(1, c));
  metadata.set("tokenizer.ggml.model", text("llama"));
  metadata.set("tokenizer.ggml.pre", text("default"));
  metadata.set("tokenizer.ggml.tokens", strings(std::move(tokens)));
  metadata.set("tokenizer.ggml.scores", floats(std::move(scores)));
  metadata.set("tokenizer.ggml.token_type", integers(std::move(types)));
  metadata.set("tokenizer.ggml.bos_token_id", uint(1));
  metadata.set("tokenizer.ggml.eos_token_id", uint(2));
  metadata.set("tokenizer.ggml.unknown_token_id", uint(0));
  metadata.set("tokenizer.ggml.add_bos_token", flag(true));
}

/// Near-normal numbers (sum of four uniforms, centred), standard deviation `scale`.
inline std::vector<float> random_values(std::uint64_t seed, std::uint64_t tensor, std::size_t n,
                                        double scale) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto bits = philox4x32({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(tensor), 0, 0},
                                 {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    double sum = -2.0;
    for (const std::uint32_t b : bits) sum += b * (1.0 / 4294967296.0);
    values[i] = static_cast<float>(sum * scale * std::sqrt(3.0));
  }
  return values;
}

}  // namespace tiny

/// Writes the model to `path`.
inline void write_tiny_model(const std::filesystem::path& path, const TinyModelOptions& options = {}) {
  const std::int64_t width = options.embedding, head_dim = width / options.heads;
  gguf::Metadata metadata;
  metadata.set("general.architecture", tiny::text("llama"));
  metadata.set("general.name", tiny::text("tiny"));
  metadata.set("llama.block_count", tiny::uint(options.layers));
  metadata.set("llama.context_length", tiny::uint(options.trained_context));
  metadata.set("llama.embedding_length", tiny::uint(options.embedding));
  metadata.set("llama.feed_forward_length", tiny::uint(options.feed_forward));
  metadata.set("llama.attention.head_count", tiny::uint(options.heads));
  metadata.set("llama.attention.head_count_kv", tiny::uint(options.kv_heads));
  metadata.set("llama.attention.layer_norm_rms_epsilon", tiny::number(1e-5));
  metadata.set("llama.rope.dimension_count", tiny::uint(static_cast<std::uint64_t>(head_dim)));
  metadata.set("llama.rope.freq_base", tiny::number(10000.0));
  options.spm ? tiny::add_spm_vocabulary(metadata) : tiny::add_bpe_vocabulary(metadata);
  const auto vocab = static_cast<std::int64_t>(metadata.get_array("tokenizer.ggml.tokens").size());
  metadata.set("llama.vocab_size", tiny::uint(static_cast<std::uint64_t>(vocab)));
  for (const auto& [key, value] : options.extra) metadata.set(key, value);

  std::deque<std::vector<std::byte>> storage;
  std::vector<TensorView> tensors;
  const auto add = [&](std::string name, DType dtype, std::int64_t columns, std::int64_t rows, double scale,
                       float offset = 0.0f) {
    const auto n = static_cast<std::size_t>(columns * rows);
    std::vector<float> values = tiny::random_values(options.seed, tensors.size(), n, scale);
    for (float& v : values) v += offset;
    TensorView tensor{std::move(name), dtype, {columns, rows, 1, 1}, nullptr};
    auto& bytes = storage.emplace_back(tensor.bytes());
    if (dtype == DType::f32) {
      std::memcpy(bytes.data(), values.data(), bytes.size());
    } else {
      info(dtype).encode(values.data(), bytes.data(), n);
    }
    tensor.data = bytes.data();
    tensors.push_back(std::move(tensor));
  };
  const auto norm = [&](std::string name) { add(std::move(name), DType::f32, width, 1, 0.1, 1.0f); };
  const auto matrix = [&](std::string name, std::int64_t in, std::int64_t out) {
    add(std::move(name), options.matrix_dtype, in, out, 1.0 / std::sqrt(static_cast<double>(in)));
  };

  add("token_embd.weight", options.embedding_dtype, width, vocab, 1.0);
  for (std::uint32_t i = 0; i < options.layers; ++i) {
    const std::string block = "blk." + std::to_string(i) + ".";
    norm(block + "attn_norm.weight");
    matrix(block + "attn_q.weight", width, width);
    matrix(block + "attn_k.weight", width, options.kv_heads * head_dim);
    matrix(block + "attn_v.weight", width, options.kv_heads * head_dim);
    matrix(block + "attn_output.weight", width, width);
    norm(block + "ffn_norm.weight");
    matrix(block + "ffn_gate.weight", width, options.feed_forward);
    matrix(block + "ffn_up.weight", width, options.feed_forward);
    matrix(block + "ffn_down.weight", options.feed_forward, width);
  }
  norm("output_norm.weight");
  // A wide spread of logits: greedy choices then do not hang on the last bit.
  if (!options.tied) {
    add("output.weight", options.embedding_dtype, width, vocab, 3.0 / std::sqrt(static_cast<double>(width)));
  }
  gguf::write(path, metadata, tensors);
}

/// The default model, when it is there: `QUIPU_TEST_MODEL`, or the file `quipu pull smollm2` fetches.
inline std::filesystem::path default_model_path() {
  if (const char* model = std::getenv("QUIPU_TEST_MODEL")) return model;
  std::filesystem::path cache;
  if (const char* dir = std::getenv("QUIPU_CACHE")) {
    cache = dir;
  } else if (const char* home = std::getenv("HOME")) {
    cache = std::filesystem::path(home) / ".cache" / "quipu";
  }
  return cache / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf";
}

}  // namespace quipu::test

/// Skips a test, loudly, when the default model is absent.
#define QUIPU_REQUIRE_MODEL(path)                                                                      \
  do {                                                                                                 \
    if (!std::filesystem::exists(path))                                                                \
      GTEST_SKIP() << "SKIPPED: the default model is absent: " << (path).string()                      \
                   << " (fetch it with `quipu pull smollm2`, or set QUIPU_TEST_MODEL to a GGUF file)"; \
  } while (false)
