#include "session.hpp"

#include <fmt/format.h>

#include "commands.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/placement.hpp"
#include "core/threads.hpp"
#include "interrupt.hpp"
#include "progress.hpp"

namespace quipu::app {

std::shared_ptr<const models::Model> load_model(const ModelFlags& flags) {
  const models::LoadOptions options = flags.load_options();
  const std::string placed = place_threads(flags.cpus, flags.numa_policy());
  if (!placed.empty()) log::info("placement: {}", placed);
  auto model = models::Model::load(resolve_model(flags.model), options);
  for (const auto& shard : model->file().shards()) {
    if (options.mode == MappedFile::Mode::map) shard->prefetch();
    if (flags.mlock && !shard->lock())
      log::warning("--mlock: the system does not let {} be pinned (see ulimit -l)",
                   printable(shard->path().string()));
  }
  return model;
}

std::string add_cpu_backend(engine::EngineOptions& options, std::int64_t threads) {
  std::string reason = "-t";
  int count = static_cast<int>(threads);
  if (count == 0) {
    const ThreadAdvice advice = default_threads();
    count = advice.count;
    reason = advice.reason;
  }
  options.backends.push_back(backends::make_cpu_backend({std::make_shared<ThreadPool>(count), {UINT64_MAX}}));
  return fmt::format("{} {} ({})", count, count == 1 ? "thread" : "threads", reason);
}

Session open_session(std::shared_ptr<const models::Model> model, engine::EngineOptions options,
                     std::int64_t threads) {
  Session session;
  session.model = std::move(model);
  session.threads = add_cpu_backend(options, threads);
  session.engine = std::make_unique<engine::Engine>(session.model, std::move(options));
  return session;
}

Session open_session(const ModelFlags& model, const EngineFlags& engine, const AdapterFlags& adapters) {
  engine::EngineOptions options = engine.options();
  auto loaded = load_model(model);
  std::vector<float> scales = adapters.load(*loaded, options);
  Session session = open_session(std::move(loaded), std::move(options), engine.threads);
  session.adapters = std::move(scales);
  return session;
}

std::string describe(const Session& session) {
  const engine::MemoryReport& memory = session.engine->memory();
  return fmt::format("{}, {}\nmemory: weights {}, KV cache {}, scratch {}; context {} tokens ({})\n",
                     session.model->description(), session.threads, size_text(memory.weights),
                     size_text(memory.kv), size_text(memory.scratch), memory.context, memory.context_reason);
}

engine::Result generate(engine::Engine& engine, engine::Request request, memory::Sequence* base,
                        std::optional<memory::Sequence>* keep) {
  const engine::RequestId id = engine.submit(std::move(request), base);
  bool cancelled = false;
  while (engine.step()) {
    if (!interrupted() || cancelled) continue;
    engine.cancel(id);
    cancelled = true;
  }
  std::optional<engine::Result> result = engine.take_result(id);
  if (!result) fail(ErrorCode::internal, "the engine stopped without a result");
  if (result->stop == engine::StopReason::error)
    fail(ErrorCode::internal, "generation failed: {}", result->error);
  if (keep != nullptr) *keep = engine.take_sequence(id);
  return std::move(*result);
}

}  // namespace quipu::app
