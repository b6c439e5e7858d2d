// Sockets, TLS, keep-alive, limits and timeouts around a Handler. (Boost.Asio and Beast stay behind this
// header.)
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "server/http/http.hpp"

namespace quipu::server::http {

/// What a client may use of the server. A client that is slower or bigger gets 408, 413 or 431 and the
/// connection ends.
struct Limits {
  std::chrono::milliseconds idle{std::chrono::minutes(5)};     ///< between requests
  std::chrono::milliseconds header{std::chrono::seconds(10)};  ///< from first byte to the end of the head
  std::chrono::milliseconds body{std::chrono::seconds(30)};    ///< for the body, besides its length's share
  std::uint64_t body_rate = 16 << 10;                          ///< slowest upload, bytes per second
  std::chrono::milliseconds write{std::chrono::seconds(60)};   ///< without progress in sending
  std::chrono::milliseconds handshake{std::chrono::seconds(10)};  ///< of TLS
  std::size_t header_bytes = 32 << 10;
  std::uint64_t body_bytes = 32 << 20;
  std::size_t unsent_bytes = 16 << 20;  ///< of a stream whose reader does not keep up
  std::size_t connections = 0;          ///< 0: what the limit on open files allows
};

struct HttpOptions {
  std::string host = "127.0.0.1";  ///< address or name; "unix:PATH" for a Unix socket
  std::uint16_t port = 8080;       ///< 0: any free one
  /// PEM files; both or none. With them the server speaks TLS only.
  std::filesystem::path tls_certificate, tls_key;
  int threads = 2;
  Limits limits;
};

class HttpServer {
 public:
  /// Binds and listens; connections are taken once `start` was called. Throws `Error`: (io) an address that
  /// cannot be had, (bad_file, not_found) certificate or key, (invalid_argument) a host that does not
  /// resolve. Raises this process's limit on open files as far as it may. The handler must outlive the
  /// server.
  HttpServer(HttpOptions options, Handler& handler);
  /// Stops. Responders must not outlive the server.
  ~HttpServer();

  void start();
  /// "http://127.0.0.1:8080", "unix:/run/quipu.sock".
  const std::string& address() const;
  std::uint16_t port() const;  ///< 0 on a Unix socket
  std::size_t connections() const;
  /// Takes no more connections and ends idle ones; answers under way go on, each the last of its connection.
  void drain();
  /// Ends all connections and joins the threads: the handler is not called any more.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quipu::server::http
