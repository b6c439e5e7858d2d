// The embedders of one model and the thread that drives them: texts of many requests share a step.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/embedder.hpp"

namespace quipu::server {

/// Texts of one request.
struct EmbeddingJob {
  models::Pooling pooling = models::Pooling::mean;
  std::vector<engine::Passage> passages;
  /// Called once on the service's thread: the rows of each text in order, or why there are none.
  std::function<void(std::vector<std::vector<float>>, std::exception_ptr)> on_done;
};

class EmbeddingService {
 public:
  static constexpr std::size_t kMostQueuedTexts = 65536;

  /// Makes the embedder of the default pooling; others are made when they are first asked for. The model must
  /// outlive the service. Throws what the embedder's constructor throws.
  EmbeddingService(const models::Model& model, engine::EmbedderOptions options);
  /// Fails what waits (`Error`, cancelled), and joins the thread.
  ~EmbeddingService();
  EmbeddingService(const EmbeddingService&) = delete;
  EmbeddingService& operator=(const EmbeddingService&) = delete;

  models::Pooling default_pooling() const;
  std::int64_t context() const;  ///< most tokens of a text
  std::int64_t width() const;    ///< of the default pooling

  /// Queues the job, its texts checked. Any thread. Throws `Error` as `Embedder::check`, and for a pooling
  /// that the model cannot do; `QueueFull`.
  void submit(EmbeddingJob job);
  /// Refuses new jobs, and fails those that wait after the step under way.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quipu::server
