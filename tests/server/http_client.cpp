#include "http_client.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace quipu::test {

namespace {
void set_timeouts(int socket) {
  const timeval minute{60, 0};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof(minute));
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &minute, sizeof(minute));
}

/// The text of a chunked body so far; true once it is whole.
bool unchunk(std::string_view bytes, std::string& text, std::size_t& used) {
  text.clear();
  std::size_t at = 0;
  while (true) {
    const std::size_t line = bytes.find("\r\n", at);
    if (line == std::string_view::npos) return false;
    const std::size_t size = std::strtoul(std::string(bytes.substr(at, line - at)).c_str(), nullptr, 16);
    if (line + 2 + size + 2 > bytes.size()) return false;
    if (size == 0) {
      used = line + 4;
      return true;
    }
    text += bytes.substr(line + 2, size);
    at = line + 2 + size + 2;
  }
}
}  // namespace

std::string request_text(const std::string& method, const std::string& path, const std::string& body,
                         const std::vector<std::string>& headers) {
  std::string text = method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n";
  for (const std::string& header : headers) text += header + "\r\n";
  if (!body.empty() || method == "POST") text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  return text + "\r\n" + body;
}

HttpClient::HttpClient(std::uint16_t port) {
  socket_ = socket(AF_INET, SOCK_STREAM, 0);
  set_timeouts(socket_);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) close();
}

HttpClient::HttpClient(const std::string& unix_path) {
  socket_ = socket(AF_UNIX, SOCK_STREAM, 0);
  set_timeouts(socket_);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, unix_path.c_str(), sizeof(address.sun_path) - 1);
  if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) close();
}

HttpClient::~HttpClient() { close(); }

void HttpClient::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

bool HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::string HttpClient::receive() {
  std::string bytes(16384, '\0');
  const ssize_t got = recv(socket_, bytes.data(), bytes.size(), 0);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

HttpReply HttpClient::read_reply(const std::function<bool(std::string_view)>& on_data) {
  HttpReply reply;
  std::size_t head = std::string::npos;
  while ((head = input_.find("\r\n\r\n")) == std::string::npos) {
    const std::string more = receive();
    if (more.empty()) return reply;
    input_ += more;
  }
  std::string_view lines = std::string_view(input_).substr(0, head + 2);
  reply.status = std::atoi(std::string(lines.substr(9, 3)).c_str());
  lines.remove_prefix(lines.find("\r\n") + 2);
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find("\r\n"));
    lines.remove_prefix(line.size() + 2);
    const std::size_t colon = line.find(": ");
    std::string name(line.substr(0, colon));
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    reply.headers[name] = line.substr(colon + 2);
  }
  input_.erase(0, head + 4);
  if (reply.status == 100) return read_reply(on_data);
  const auto header_is = [&](const char* name, const char* value) {
    const auto it = reply.headers.find(name);
    return it != reply.headers.end() && it->second == value;
  };
  reply.keep_alive = !header_is("connection", "close");
  const bool chunked = header_is("transfer-encoding", "chunked");
  const bool sized = reply.headers.count("content-length") > 0;
  const std::size_t length = sized ? std::stoul(reply.headers["content-length"]) : 0;
  while (true) {
    std::size_t used = 0;
    if (chunked) {
      reply.complete = unchunk(input_, reply.body, used);
    } else if (sized || reply.status == 204 || reply.status == 304) {
      reply.body = input_.substr(0, length);
      reply.complete = reply.body.size() == length;
      used = length;
    } else {
      reply.body = input_;
    }
    if (on_data && !on_data(reply.body)) return reply;
    if (reply.complete) {
      input_.erase(0, used);
      return reply;
    }
    const std::string more = receive();
    if (more.empty()) {
      reply.complete = !chunked && !sized;
      return reply;
    }
    input_ += more;
  }
}

HttpReply HttpClient::request(const std::string& method, const std::string& path, const std::string& body,
                              const std::vector<std::string>& headers,
                              const std::function<bool(std::string_view)>& on_data) {
  send(request_text(method, path, body, headers));
  return read_reply(on_data);
}

}  // namespace quipu::test
