// One line a request, without its text unless that is asked for.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/generation.hpp"
#include "server/http/http.hpp"
#include "server/server_metrics.hpp"

namespace quipu::server {

/// Adds headers to an answer, counts it and logs it when it is complete or its client went away (status 499).
class LoggedResponder final : public http::Responder {
 public:
  LoggedResponder(std::shared_ptr<http::Responder> inner, std::vector<http::Header> headers,
                  const http::Request& request, std::uint64_t id, std::string user, HttpMetrics& metrics);
  ~LoggedResponder() override;

  void respond(http::Response response) override;
  void start(http::Response head) override;
  void write(std::string piece) override { inner_->write(std::move(piece)); }
  void finish() override;
  void on_gone(std::function<void()> callback) override;
  void summary(const GenerationSummary& summary);

 private:
  struct Record;
  void log(int status);
  std::shared_ptr<http::Responder> inner_;
  std::vector<http::Header> headers_;
  std::shared_ptr<Record> record_;
  HttpMetrics& metrics_;
  std::atomic<int> status_{200};
};

/// A line with what the request sent, for those who asked for it.
void log_body(const http::Request& request, std::uint64_t id);
/// Logs a request that was refused before it was one.
void log_refusal(const http::Request& request, int status);

}  // namespace quipu::server
