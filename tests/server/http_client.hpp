// A small blocking HTTP/1.1 client that can also misbehave.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace quipu::test {

struct HttpReply {
  int status = 0;
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;                            ///< without chunk framing
  bool complete = false;                       ///< the end of the body was seen
  bool keep_alive = false;
};

/// One connection. Every wait ends after a minute.
class HttpClient {
 public:
  explicit HttpClient(std::uint16_t port);
  explicit HttpClient(const std::string& unix_path);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool send(std::string_view bytes);
  /// What arrives next; empty at the end of the connection.
  std::string receive();
  /// Reads one whole answer. `on_data` sees the body's text so far after each piece; false stops reading.
  HttpReply read_reply(const std::function<bool(std::string_view)>& on_data = {});
  HttpReply request(const std::string& method, const std::string& path, const std::string& body = {},
                    const std::vector<std::string>& headers = {},
                    const std::function<bool(std::string_view)>& on_data = {});
  void close();

 private:
  int socket_ = -1;
  std::string input_;
};

/// A request as its bytes.
std::string request_text(const std::string& method, const std::string& path, const std::string& body,
                         const std::vector<std::string>& headers = {});

}  // namespace quipu::test
