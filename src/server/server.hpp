// The server: HTTP, access, routes to dialects, metrics, request log, shutting down.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "server/access.hpp"
#include "server/http/http_server.hpp"
#include "server/models.hpp"

namespace quipu::server {

struct ServerOptions {
  http::HttpOptions http;
  ApiKeys keys;
  Origins origins;
  std::chrono::milliseconds heartbeat{15000};  ///< of silent streams
  std::chrono::milliseconds stall{60000};      ///< a step that takes longer makes /health complain
  int workers = 2;
  std::filesystem::path slot_save_path;  ///< where slots are saved; empty: they are not
  bool log_bodies = false;               ///< the request log shows what was sent, prompts included
  std::string version;
};

class Server {
 public:
  /// Binds the address; throws as `HttpServer` does.
  Server(ServerOptions options, std::unique_ptr<Models> models);
  /// Ends everything at once.
  ~Server();

  /// Answers requests from now on, and begins to load the first model.
  void start();
  const std::string& address() const;
  std::uint16_t port() const;
  Models& models();

  /// Takes no new work and waits for what is under way. When `deadline` passes the rest is cancelled (their
  /// clients get an error); false then.
  bool drain(std::chrono::milliseconds deadline);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quipu::server
