// One engine and the thread that drives it: requests come in from any thread, tokens go out.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "engine/engine.hpp"
#include "server/metrics.hpp"
#include "server/slots.hpp"

namespace quipu::server {

using JobId = std::uint64_t;

/// One sequence to generate. The callbacks of `request` and `on_done` run on the engine's thread and must be
/// quick; what they throw ends this job only.
struct Job {
  engine::Request request;
  std::string user;                             ///< who asks: users take turns
  int priority = 0;                             ///< higher ones start first
  std::int64_t slot = -1;                       ///< the place it must have; -1: any
  std::function<void(engine::Result)> on_done;  ///< once, when the job is over, however it ended
};

/// More jobs than the queue holds: try again later.
class QueueFull : public Error {
 public:
  QueueFull(std::size_t queued, std::size_t limit, int retry_after_seconds);
  int retry_after_seconds() const { return retry_after_; }

 private:
  int retry_after_;
};

/// What one of the engine's places holds, for `/slots`.
struct SlotView {
  std::size_t id = 0;
  JobId job = 0;
  bool busy = false;
  std::int64_t prompt_tokens = 0, generated_tokens = 0, max_tokens = -1;
};

struct ServiceMetrics {
  Counter requests, rejected, cancelled, failed, steps;
  Counter prompt_tokens, cached_tokens, generated_tokens, computed_rows;
  Histogram queue_seconds{0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120};
  Histogram first_token_seconds{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120};
  Histogram between_tokens_seconds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5};
  Histogram batch_sequences{1, 2, 4, 8, 16, 32, 64, 128, 256};
  Histogram step_seconds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10};
};

struct ServiceOptions {
  std::size_t queue = 256;  ///< jobs that may wait for a place in the engine
  bool keep_slots = false;  ///< places remember what ran in them, so that it can be saved and gone on from
};

class EngineService {
 public:
  /// Throws what the engine's constructor throws.
  EngineService(std::shared_ptr<const models::Model> model, engine::EngineOptions engine,
                const ServiceOptions& options = {});
  /// Cancels what runs and waits, and joins the thread.
  ~EngineService();
  EngineService(const EngineService&) = delete;
  EngineService& operator=(const EngineService&) = delete;

  const models::Model& model() const;
  const engine::MemoryReport& memory() const;
  std::size_t places() const;  ///< sequences that may run together

  /// Any thread, as `engine::Engine::constrain`.
  std::shared_ptr<text::grammar::Constraint> constrain(const text::grammar::Grammar& grammar) const;
  /// Checks without queueing. Throws as `engine::Engine::submit` does.
  void check(const engine::Request& request) const;
  /// Queues all jobs or none, checked first. Throws what `check` throws, `QueueFull`, and `Error` (cancelled)
  /// once the service drains.
  std::vector<JobId> submit(std::vector<Job> jobs);
  /// Ends a job before the next step; its `on_done` tells. Unknown and finished ones are left alone.
  void cancel(JobId id);

  /// Operations on a place; they wait until it is free. `done` is told of failures, also when the service
  /// ends first. Throws `Error` (invalid_argument) for a place that there is not, (cancelled) once it drains,
  /// and (unsupported) where nothing can be continued (engine::Engine::check_continues).
  void save_slot(std::size_t place, const std::filesystem::path& path, SlotDone done);
  /// `adapters`: scales of those that the file's content was computed with.
  void restore_slot(std::size_t place, const std::filesystem::path& path, std::vector<float> adapters,
                    SlotDone done);
  void erase_slot(std::size_t place, SlotDone done);

  /// Refuses new jobs from now on.
  void drain();
  /// Waits until nothing runs or waits; false when that did not happen in time.
  bool wait_idle(std::chrono::milliseconds limit);
  void cancel_all();

  std::size_t queued() const;
  std::size_t running() const;
  std::vector<SlotView> slots() const;
  engine::EngineStats stats() const;  ///< as of the last step
  const ServiceMetrics& metrics() const;
  /// How long the step under way has been running; zero between steps.
  std::chrono::milliseconds step_age() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quipu::server
