// A small HTTP/1.1 server on a local port that misbehaves as told.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace quipu::test {

struct HttpAnswer {
  int status = 200;
  std::string body = {};
  bool ranges = true;                ///< honours "Range: bytes=N-"
  std::size_t cut_after = SIZE_MAX;  ///< closes the connection after so many bytes of the body, once
  std::string location = {};         ///< of a redirect
};

class HttpServer {
 public:
  HttpServer();
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url(const std::string& path = "") const;
  void serve(const std::string& path, HttpAnswer answer);
  /// "GET path range" of each request so far; the range is "-" without one.
  std::vector<std::string> requests() const;

 private:
  void loop();
  void handle(int connection);
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  std::map<std::string, HttpAnswer> answers_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace quipu::test
