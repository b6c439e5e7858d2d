// One request on its way through the server, and what a dialect may do with it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/generation.hpp"
#include "server/http/http.hpp"
#include "server/models.hpp"
#include "server/request_model.hpp"

namespace quipu::server {

class Call;

/// One path of a dialect.
struct Route {
  std::string method;  ///< "GET", "POST"; GET answers HEAD as well
  /// "/v1/models"; a last segment "*" stands for any one segment, see Call::tail.
  std::string path;
  /// Answers the call, at once or later. What it throws is answered in the dialect's form.
  std::function<void(const std::shared_ptr<Call>&)> run;
  /// Cheap enough for an I/O thread: answered even while all workers are busy.
  bool immediate = false;
  bool needs_key = true;
};

/// An API that clients speak: its paths and its error object. One file each in this folder's `dialects`.
class Dialect {
 public:
  virtual ~Dialect() = default;
  virtual std::vector<Route> routes() const = 0;
  /// The answer to a failed request: body and, where the dialect has its own, status.
  virtual http::Response error(const RequestError& error) const = 0;
  /// Whether an unknown path looks like this dialect's.
  virtual bool claims(std::string_view path) const = 0;
};

/// What the dialects of one server share.
struct ServerContext {
  Models* models = nullptr;
  Workers* workers = nullptr;
  std::string version;
  std::function<std::string()> metrics_text;
  std::function<bool()> draining;
  /// Answers as the request was generated, so that heartbeats reach it.
  std::function<void(std::weak_ptr<Generation>)> watch;
  std::chrono::milliseconds stall{60000};  ///< a step that takes longer makes /health complain
  std::filesystem::path slot_save_path;    ///< where slots are saved; empty: they are not
};

class Call : public std::enable_shared_from_this<Call> {
 public:
  http::Request request;
  std::shared_ptr<http::Responder> responder;
  const Dialect* dialect = nullptr;
  const ServerContext* context = nullptr;
  std::uint64_t id = 0;
  std::string user;  ///< for fairness: the API key's number, or the peer's address
  std::string tail;  ///< what stood for the route's "*"
  std::function<void(const GenerationSummary&)> on_summary;  ///< for the request log

  void respond_json(std::string body, int status = 200);
  void respond(http::Response response);
  void fail(const RequestError& error);
  /// The exception under way.
  void fail_current();
  /// Runs `then` on a worker once the model is loaded; errors, and what `then` throws, are answered.
  void with_model(const std::string& name, std::function<void(const std::shared_ptr<Served>&)> then);
  /// Queues the request and answers with it. Throws as `start_generation` does.
  void generate(std::shared_ptr<Served> served, GenerationRequest wanted,
                std::unique_ptr<AnswerFormat> format);
};

}  // namespace quipu::server
