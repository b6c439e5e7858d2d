// From a GenerationRequest to the bytes of its answer: jobs for the engine, events back, errors, heartbeats.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

#include "server/http/http.hpp"
#include "server/models.hpp"
#include "server/request_model.hpp"
#include "server/workers.hpp"

namespace quipu::server {

/// What the request log tells of a generation.
struct GenerationSummary {
  TotalUsage usage;
  std::string finish;  ///< "eos", "stop", "length" …; of the first choice
  double queue_and_prompt_ms = 0;
  std::string cache_note;  ///< see engine::Result
};

struct GenerationSetup {
  std::shared_ptr<Served> served;
  GenerationRequest request;
  std::unique_ptr<AnswerFormat> format;
  std::shared_ptr<http::Responder> responder;
  std::string user;
  /// An error before the first byte of the answer, as the dialect answers it.
  std::function<http::Response(const RequestError&)> error_response;
  std::function<void(const GenerationSummary&)> on_end;  ///< before the answer is complete
};

class Generation {
 public:
  virtual ~Generation() = default;
  /// Sends a heartbeat when the stream has been silent for `interval`.
  virtual void tick(std::chrono::steady_clock::time_point now, std::chrono::milliseconds interval) = 0;
  virtual void cancel() = 0;
};

/// Checks and queues the request, and answers it as results come, on threads of `workers`. When the client
/// goes away the jobs are cancelled. Throws what `EngineService::submit` throws: nothing has been answered
/// then.
std::shared_ptr<Generation> start_generation(GenerationSetup setup, Workers& workers);

}  // namespace quipu::server
