// Adapters and control vectors on the command line, with llama.cpp's names.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.hpp"

namespace CLI {
class App;
}

namespace quipu::app {

struct AdapterFlags {
  using Scaled = std::pair<std::string, double>;
  std::vector<std::string> lora, control;
  std::vector<Scaled> lora_scaled, control_scaled;
  std::vector<std::int64_t> layer_range;
  bool without_apply = false;

  /// `serving` adds what only a server has.
  void add(CLI::App& app, bool serving = false);
  /// Loads them for the model, into the engine's options: those of --lora, then those of --lora-scaled.
  /// Returns the scale of each adapter. Throws `Error` as `models::Adapter::load` does.
  std::vector<float> load(const models::Model& model, engine::EngineOptions& options) const;
};

}  // namespace quipu::app
