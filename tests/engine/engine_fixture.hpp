// Engines over a tiny model, and what they produce as bytes.
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "engine/engine.hpp"
#include "tiny_model.hpp"

namespace quipu::test {

/// One tiny model per process and set of options.
inline std::shared_ptr<const models::Model> tiny_model(const TinyModelOptions& options = {}) {
  TemporaryFolder folder;
  write_tiny_model(folder / "tiny.gguf", options);
  return models::Model::load(folder / "tiny.gguf");  // stays mapped
}
inline const std::shared_ptr<const models::Model>& shared_tiny_model() {
  static const std::shared_ptr<const models::Model> model = tiny_model();
  return model;
}

struct EngineSettings {
  std::int64_t context = 256, sequences = 1, batch = 512;
  int threads = 1;
  bool reference = false;
  std::uint32_t pool_pages = 0;
  bool scatter = false;
  bool prefix_cache = false;
  DType kv = DType::f16;
};

inline engine::EngineOptions engine_options(const EngineSettings& s) {
  engine::EngineOptions options;
  options.context = s.context;
  options.sequences = s.sequences;
  options.batch = s.batch;
  options.k_dtype = options.v_dtype = s.kv;
  options.pool_pages = s.pool_pages;
  options.scatter_pages = s.scatter;
  options.prefix_cache = s.prefix_cache;
  if (s.reference) {
    options.backends.push_back(backends::make_reference_backend());
  } else {
    backends::CpuOptions cpu;
    cpu.threads = std::make_shared<ThreadPool>(s.threads);
    options.backends.push_back(backends::make_cpu_backend(std::move(cpu)));
  }
  return options;
}

inline engine::Engine make_engine(const EngineSettings& s = {},
                                  std::shared_ptr<const models::Model> model = shared_tiny_model()) {
  return engine::Engine(std::move(model), engine_options(s));
}

/// Pseudo-random byte tokens of the tiny vocabulary.
inline std::vector<std::int32_t> random_prompt(std::uint64_t seed, std::size_t length,
                                               std::int32_t vocab = 256) {
  std::vector<std::int32_t> tokens(length);
  for (std::size_t i = 0; i < length; ++i) {
    tokens[i] = static_cast<std::int32_t>(philox_uniform(seed, i) * vocab);
  }
  return tokens;
}

inline engine::Request greedy(std::vector<std::int32_t> prompt, std::int64_t max_tokens) {
  engine::Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  return request;
}

/// Everything a request produced: tokens, and the bytes of the logits of every draw.
struct Trace {
  std::vector<std::int32_t> tokens;
  std::string logits;
  std::string streamed;
  bool operator==(const Trace&) const = default;
};

/// Records a request's events; the trace must outlive it.
inline void record(engine::Request& request, Trace& trace) {
  request.on_token = [&trace](const engine::TokenEvent& event) {
    trace.tokens.push_back(event.token);
    trace.streamed += event.text;
    trace.logits.append(reinterpret_cast<const char*>(event.logits.data()), event.logits.size_bytes());
  };
}

inline Trace trace_of(engine::Engine& engine, engine::Request request, memory::Sequence* base = nullptr,
                      std::optional<memory::Sequence>* keep = nullptr) {
  Trace trace;
  record(request, trace);
  engine.generate(std::move(request), base, keep);
  return trace;
}

}  // namespace quipu::test
