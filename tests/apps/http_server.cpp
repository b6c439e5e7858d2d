#include "http_server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace quipu::test {

HttpServer::HttpServer() {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (listener_ < 0 || ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener_, 16) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw std::runtime_error("no local port for the test server");
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { loop(); });
}

HttpServer::~HttpServer() {
  stop_ = true;
  thread_.join();
  ::close(listener_);
}

std::string HttpServer::url(const std::string& path) const {
  return "http://127.0.0.1:" + std::to_string(port_) + path;
}

void HttpServer::serve(const std::string& path, HttpAnswer answer) {
  const std::lock_guard lock(mutex_);
  answers_[path] = std::move(answer);
}

std::vector<std::string> HttpServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void HttpServer::loop() {
  while (!stop_) {
    pollfd fd{listener_, POLLIN, 0};
    if (::poll(&fd, 1, 50) <= 0) continue;
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    handle(connection);
    ::close(connection);
  }
}

void HttpServer::handle(int connection) {
  std::string request;
  char buffer[4096];
  while (request.find("\r\n\r\n") == std::string::npos) {
    const ssize_t count = ::recv(connection, buffer, sizeof buffer, 0);
    if (count <= 0) return;
    request.append(buffer, static_cast<std::size_t>(count));
  }
  const std::size_t begin = request.find(' ') + 1;
  const std::string path = request.substr(begin, request.find(' ', begin) - begin);
  const std::size_t range = request.find("Range: bytes=");
  std::size_t offset = 0;
  std::string range_text = "-";
  if (range != std::string::npos) {
    offset = std::stoul(request.substr(range + 13));
    range_text = std::to_string(offset);
  }
  HttpAnswer answer;
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back("GET " + path + " " + range_text);
    const auto found = answers_.find(path);
    answer = found == answers_.end() ? HttpAnswer{404, "no such file", true, SIZE_MAX, ""} : found->second;
    if (found != answers_.end()) found->second.cut_after = SIZE_MAX;
  }
  std::string extra;
  if (!answer.location.empty()) extra += "Location: " + answer.location + "\r\n";
  std::string body = answer.body;
  if (range != std::string::npos && answer.ranges && answer.status == 200) {
    if (offset >= body.size()) {
      answer.status = 416;
      body.clear();
    } else {
      answer.status = 206;
      extra += "Content-Range: bytes " + std::to_string(offset) + "-" + std::to_string(body.size() - 1) +
               "/" + std::to_string(body.size()) + "\r\n";
      body.erase(0, offset);
    }
  }
  std::string reply = "HTTP/1.1 " + std::to_string(answer.status) +
                      " Status\r\nContent-Length: " + std::to_string(body.size()) +
                      "\r\nConnection: close\r\n" + extra + "\r\n";
  reply += body.substr(0, answer.cut_after);
  for (std::size_t sent = 0; sent < reply.size();) {
    const ssize_t count = ::send(connection, reply.data() + sent, reply.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return;
    sent += static_cast<std::size_t>(count);
  }
}

}  // namespace quipu::test
