#include "server/server.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "core/atomic_file.hpp"
#include "core/log.hpp"
#include "server/call.hpp"
#include "server/dialects/dialects.hpp"
#include "server/request_log.hpp"
#include "server/server_metrics.hpp"

namespace quipu::server {

namespace {

constexpr std::chrono::milliseconds kTick{500};

bool matches(const Route& route, std::string_view path, std::string& tail) {
  const std::string_view pattern = route.path;
  if (pattern.empty() || pattern.back() != '*') return pattern == path;
  const std::string_view start = pattern.substr(0, pattern.size() - 1);
  if (path.size() <= start.size() || path.substr(0, start.size()) != start) return false;
  tail = path.substr(start.size());
  return true;
}

bool answers(const Route& route, std::string_view method) {
  return route.method == method || (route.method == "GET" && method == "HEAD");
}

}  // namespace

struct Server::Impl : http::Handler {
  Impl(ServerOptions o, std::unique_ptr<Models> m)
      : options(std::move(o)), models(std::move(m)), workers(std::make_unique<Workers>(options.workers)) {}

  struct Found {
    const Dialect* dialect = nullptr;
    const Route* route = nullptr;
    std::string tail, allow;  ///< allow: methods of the path, when `route` is null and there are any
  };

  ServerOptions options;
  std::unique_ptr<Models> models;
  std::unique_ptr<Workers> workers;
  std::vector<std::unique_ptr<Dialect>> dialects;
  std::vector<std::pair<const Dialect*, Route>> routes;
  ServerContext context;
  HttpMetrics http_metrics;
  std::atomic<std::uint64_t> last_id{0};
  std::atomic<bool> draining{false};
  std::unique_ptr<http::HttpServer> http;

  std::mutex mutex;
  std::condition_variable wake;
  std::list<std::weak_ptr<Generation>> watched;  // guarded
  bool stopping = false;                         // guarded
  std::thread ticker;

  void set_up();
  void tick_loop();
  Found find(const http::Request& request) const;
  const Dialect& dialect_of(std::string_view path) const;
  http::Response refusal(const RequestError& error, const http::Request& request) const;

  std::optional<http::Response> admit(const http::Request& head) override;
  std::optional<http::Response> decide(const http::Request& head);
  void handle(http::Request request, std::shared_ptr<http::Responder> responder) override;
  http::Response refuse(int status, std::string_view message, const http::Request& request) override;
};

void Server::Impl::set_up() {
  dialects = make_dialects();
  for (const auto& dialect : dialects) {
    for (Route& route : dialect->routes()) routes.emplace_back(dialect.get(), std::move(route));
  }
  context.models = models.get();
  context.workers = workers.get();
  context.version = options.version;
  context.stall = options.stall;
  context.slot_save_path = options.slot_save_path;
  if (!options.slot_save_path.empty()) remove_abandoned_files(options.slot_save_path);
  context.draining = [this] { return draining.load(); };
  context.metrics_text = [this] {
    return server_metrics_text(*models, http_metrics, http->connections(), options.version);
  };
  context.watch = [this](std::weak_ptr<Generation> generation) {
    const std::lock_guard lock(mutex);
    watched.push_back(std::move(generation));
  };
  ticker = std::thread([this] { tick_loop(); });
}

void Server::Impl::tick_loop() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    wake.wait_for(lock, kTick, [&] { return stopping; });
    if (stopping) return;
    std::vector<std::shared_ptr<Generation>> alive;
    for (auto it = watched.begin(); it != watched.end();) {
      if (auto generation = it->lock()) {
        alive.push_back(std::move(generation));
        ++it;
      } else {
        it = watched.erase(it);
      }
    }
    lock.unlock();
    const auto now = std::chrono::steady_clock::now();
    for (const auto& generation : alive) generation->tick(now, options.heartbeat);
    alive.clear();
    models->tick();
    for (const Models::Listed& listed : models->list()) {
      if (!listed.served) continue;
      const auto age = listed.served->service->step_age();
      if (age > options.stall)
        log::error("a step of {} has been running for {} s", listed.entry.id, age.count() / 1000);
    }
    lock.lock();
  }
}

// ---- routes ----

Server::Impl::Found Server::Impl::find(const http::Request& request) const {
  Found found;
  for (const auto& [dialect, route] : routes) {
    std::string tail;
    if (!matches(route, request.path, tail)) continue;
    if (answers(route, request.method)) return {dialect, &route, tail, {}};
    found.dialect = dialect;
    found.allow += (found.allow.empty() ? "" : ", ") + route.method;
  }
  return found;
}

const Dialect& Server::Impl::dialect_of(std::string_view path) const {
  for (const auto& dialect : dialects) {
    if (dialect->claims(path)) return *dialect;
  }
  return *dialects.back();
}

http::Response Server::Impl::refusal(const RequestError& error, const http::Request& request) const {
  http::Response response = dialect_of(request.path).error(error);
  if (error.retry_after_seconds > 0)
    response.headers.push_back({"Retry-After", std::to_string(error.retry_after_seconds)});
  if (options.origins.judge(request) == Origins::Verdict::allowed) {
    for (http::Header& header : options.origins.headers(request.header("Origin")))
      response.headers.push_back(std::move(header));
  }
  return response;
}

// ---- requests ----

std::optional<http::Response> Server::Impl::admit(const http::Request& head) {
  auto answer = decide(head);
  if (answer) {
    http_metrics.count(answer->status);
    log_refusal(head, answer->status);
  }
  return answer;
}

std::optional<http::Response> Server::Impl::decide(const http::Request& head) {
  const Origins::Verdict verdict = options.origins.judge(head);
  if (verdict == Origins::Verdict::foreign)
    return refusal({ErrorKind::forbidden,
                    fmt::format("web pages of {} may not use this server (--cors-origin allows them)",
                                printable(head.header("Origin"), 100))},
                   head);
  if (head.method == "OPTIONS") {
    http::Response response;
    response.status = 204;
    if (verdict == Origins::Verdict::allowed) response.headers = options.origins.preflight_headers(head);
    return response;
  }
  const Found found = find(head);
  const bool open = found.route != nullptr && !found.route->needs_key;
  if (!open && options.keys.required() && !options.keys.match(ApiKeys::from(head))) {
    http::Response response =
        refusal({ErrorKind::unauthorized, ApiKeys::from(head).empty()
                                              ? "this server wants an API key: Authorization: Bearer KEY"
                                              : "the API key is not one of this server's"},
                head);
    response.headers.push_back({"WWW-Authenticate", "Bearer"});
    return response;
  }
  if (found.route == nullptr && !found.allow.empty()) {
    http::Response response =
        refusal({ErrorKind::wrong_method,
                 fmt::format("{} is not allowed on {}, expected {}", printable(head.method, 20),
                             printable(head.path, 100), found.allow)},
                head);
    response.headers.push_back({"Allow", found.allow});
    return response;
  }
  if (found.route == nullptr)
    return refusal({ErrorKind::not_found, fmt::format("there is no {}", printable(head.path, 100))}, head);
  return std::nullopt;
}

void Server::Impl::handle(http::Request request, std::shared_ptr<http::Responder> responder) {
  Found found = find(request);
  auto call = std::make_shared<Call>();
  call->id = ++last_id;
  call->dialect = found.dialect;
  call->context = &context;
  call->tail = std::move(found.tail);
  const std::optional<std::size_t> key =
      options.keys.required() ? options.keys.match(ApiKeys::from(request)) : std::nullopt;
  call->user = key ? fmt::format("key {}", *key) : request.peer.substr(0, request.peer.rfind(':'));

  std::vector<http::Header> headers{{"X-Request-Id", fmt::format("req_{:08x}", call->id)}};
  if (options.origins.judge(request) == Origins::Verdict::allowed) {
    for (http::Header& header : options.origins.headers(request.header("Origin")))
      headers.push_back(std::move(header));
  }
  if (options.log_bodies) log_body(request, call->id);
  auto logged = std::make_shared<LoggedResponder>(std::move(responder), std::move(headers), request, call->id,
                                                  call->user, http_metrics);
  call->on_summary = [weak = std::weak_ptr(logged)](const GenerationSummary& summary) {
    if (const auto log = weak.lock()) log->summary(summary);
  };
  call->responder = std::move(logged);
  call->request = std::move(request);
  const auto run = [route = found.route, call] {
    try {
      route->run(call);
    } catch (...) {
      call->fail_current();
    }
  };
  if (found.route->immediate) return run();
  if (draining) {
    RequestError closing(ErrorKind::unavailable, "the server is shutting down");
    closing.retry_after_seconds = 5;
    return call->fail(closing);
  }
  workers->post(run);
}

http::Response Server::Impl::refuse(int status, std::string_view message, const http::Request& request) {
  ErrorKind kind = ErrorKind::invalid_request;
  if (status == 408) kind = ErrorKind::timeout;
  if (status == 413 || status == 431) kind = ErrorKind::too_large;
  if (status >= 500) kind = ErrorKind::internal;
  RequestError error(kind, std::string(message));
  error.http_status = status;
  http_metrics.count(status);
  log_refusal(request, status);
  return refusal(error, request);
}

// ---- the interface ----

Server::Server(ServerOptions options, std::unique_ptr<Models> models)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(models))) {
  impl_->http = std::make_unique<http::HttpServer>(impl_->options.http, *impl_);
  impl_->set_up();
}

Server::~Server() {
  Impl& s = *impl_;
  {
    const std::lock_guard lock(s.mutex);
    s.stopping = true;
  }
  s.wake.notify_all();
  s.ticker.join();
  s.http->stop();
  // Models first, then workers: what holds a responder is gone before the server of the connections is.
  s.models.reset();
  s.workers.reset();
  s.http.reset();
}

void Server::start() {
  impl_->http->start();
  impl_->models->preload();
}

const std::string& Server::address() const { return impl_->http->address(); }
std::uint16_t Server::port() const { return impl_->http->port(); }
Models& Server::models() { return *impl_->models; }

bool Server::drain(std::chrono::milliseconds deadline) {
  Impl& s = *impl_;
  s.draining = true;
  s.http->drain();
  const auto end = std::chrono::steady_clock::now() + deadline;
  bool complete = true;
  std::vector<std::shared_ptr<Served>> all;
  for (Models::Listed& listed : s.models->list()) {
    if (listed.served) all.push_back(std::move(listed.served));
  }
  for (const auto& served : all) served->service->drain();
  for (const auto& served : all) {
    const auto left = end - std::chrono::steady_clock::now();
    if (served->service->wait_idle(std::max(std::chrono::duration_cast<std::chrono::milliseconds>(left),
                                            std::chrono::milliseconds(0))))
      continue;
    complete = false;
    served->service->cancel_all();
    served->service->wait_idle(std::chrono::milliseconds(2000));
  }
  // The last bytes: connections end themselves behind their answer.
  const auto flushed = std::chrono::steady_clock::now() + std::chrono::milliseconds(2000);
  while (s.http->connections() > 0 && std::chrono::steady_clock::now() < flushed)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return complete;
}

}  // namespace quipu::server
