// A loaded model with an engine, as run, chat, bench and eval use it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapter_flags.hpp"
#include "engine/engine.hpp"
#include "flags.hpp"
#include "models/model.hpp"

namespace quipu::app {

struct Session {
  std::shared_ptr<const models::Model> model;
  std::unique_ptr<engine::Engine> engine;
  std::vector<float> adapters;  ///< scales of the engine's adapters
  std::string threads;          ///< "2 threads (2 physical cores)": for people
};

/// Places this thread as asked (before memory and threads are made), resolves and loads the model. Warns when
/// pages could not be pinned.
std::shared_ptr<const models::Model> load_model(const ModelFlags& flags);
/// Adds the CPU backend with so many threads, 0: the machine's default; says how many and why, for people.
std::string add_cpu_backend(engine::EngineOptions& options, std::int64_t threads);
/// `threads` as above. Warns when the context is longer than the model was trained for.
Session open_session(std::shared_ptr<const models::Model> model, engine::EngineOptions options,
                     std::int64_t threads);
Session open_session(const ModelFlags& model, const EngineFlags& engine, const AdapterFlags& adapters);

/// What the engine takes, in one or two lines for people: model, threads, weights, cache, scratch, context.
std::string describe(const Session& session);

/// Runs one request to its end. Ctrl-C cancels it (the result then says so) when an `InterruptGuard` is
/// active.
engine::Result generate(engine::Engine& engine, engine::Request request, memory::Sequence* base = nullptr,
                        std::optional<memory::Sequence>* keep = nullptr);

}  // namespace quipu::app
