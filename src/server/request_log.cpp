#include "server/request_log.hpp"

#include <utility>

#include "core/error.hpp"
#include "core/log.hpp"

namespace quipu::server {

namespace {
constexpr int kClientGone = 499;
constexpr std::size_t kMostLogged = std::size_t{1} << 20;  // of a body
}  // namespace

struct LoggedResponder::Record {
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  std::string line;  // what is known from the start
  std::atomic<bool> logged{false}, gone{false};
  std::mutex mutex;
  GenerationSummary summary;  // guarded
  bool has_summary = false;   // guarded
};

LoggedResponder::LoggedResponder(std::shared_ptr<http::Responder> inner, std::vector<http::Header> headers,
                                 const http::Request& request, std::uint64_t id, std::string user,
                                 HttpMetrics& metrics)
    : inner_(std::move(inner)),
      headers_(std::move(headers)),
      record_(std::make_shared<Record>()),
      metrics_(metrics) {
  record_->line = fmt::format("request id=req_{:08x} peer={} user=\"{}\" method={} path={}", id,
                              printable(request.peer, 60), printable(user, 60), printable(request.method, 20),
                              printable(request.path, 100));
}

LoggedResponder::~LoggedResponder() { log(record_->gone ? kClientGone : 500); }

void LoggedResponder::respond(http::Response response) {
  log(record_->gone ? kClientGone : response.status);
  response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
  inner_->respond(std::move(response));
}

void LoggedResponder::start(http::Response head) {
  status_ = head.status;
  head.headers.insert(head.headers.end(), headers_.begin(), headers_.end());
  inner_->start(std::move(head));
}

void LoggedResponder::finish() {
  log(record_->gone ? kClientGone : status_.load());
  inner_->finish();
}

void LoggedResponder::on_gone(std::function<void()> callback) {
  inner_->on_gone([record = record_, callback = std::move(callback)] {
    record->gone = true;
    callback();
  });
}

void LoggedResponder::summary(const GenerationSummary& summary) {
  const std::lock_guard lock(record_->mutex);
  record_->summary = summary;
  record_->has_summary = true;
}

void LoggedResponder::log(int status) {
  if (record_->logged.exchange(true)) return;
  metrics_.count(status);
  const auto elapsed =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - record_->began).count();
  std::string line = fmt::format("{} status={} ms={:.1f}", record_->line, status, elapsed);
  const std::lock_guard lock(record_->mutex);
  if (record_->has_summary) {
    const GenerationSummary& s = record_->summary;
    line +=
        fmt::format(" prompt_tokens={} cached_tokens={} completion_tokens={} first_token_ms={:.1f} stop={}",
                    s.usage.prompt_tokens, s.usage.cached_tokens, s.usage.completion_tokens,
                    s.queue_and_prompt_ms, s.finish.empty() ? "none" : s.finish);
    if (!s.cache_note.empty()) line += fmt::format(" not_cached=\"{}\"", s.cache_note);
  }
  log::info("{}", line);
}

void log_body(const http::Request& request, std::uint64_t id) {
  if (!request.body.empty())
    log::info("request id=req_{:08x} body={}", id, printable(request.body, kMostLogged));
}

void log_refusal(const http::Request& request, int status) {
  log::info("request peer={} method={} path={} status={}", printable(request.peer, 60),
            request.method.empty() ? "-" : printable(request.method, 20),
            request.path.empty() ? "-" : printable(request.path, 100), status);
}

}  // namespace quipu::server
