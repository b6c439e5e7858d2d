// HTTP as the rest of the server sees it: plain structs, no sockets, no Boost.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quipu::server::http {

struct Header {
  std::string name, value;
};

struct Request {
  std::string method;  ///< upper case
  std::string path;    ///< of the target, percent-decoded, without the query
  std::string query;   ///< behind the '?', as sent
  std::vector<Header> headers;
  std::string body;
  std::string peer;  ///< "127.0.0.1:40312", "unix"

  /// Value of the first header of this name, whatever its case; empty when absent.
  std::string_view header(std::string_view name) const;
  bool has_header(std::string_view name) const;
  /// Value of `name` in the query, percent-decoded; nothing when absent.
  std::optional<std::string> parameter(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json; charset=utf-8";
  std::vector<Header> headers = {};  ///< further ones; names and values without line breaks
  std::string body = {};
  bool close = false;  ///< end the connection behind it
};

/// The answer to one request. All members may be called from any thread and return at once; after the client
/// went away they do nothing. One that is destroyed before its answer is complete answers 500, or breaks the
/// stream off.
class Responder {
 public:
  virtual ~Responder() = default;
  /// A whole answer; nothing may follow.
  virtual void respond(Response response) = 0;
  /// Status and headers of a stream, whose body is the first piece. Pieces follow with `write`, `finish` ends
  /// it.
  virtual void start(Response head) = 0;
  virtual void write(std::string piece) = 0;
  virtual void finish() = 0;
  /// `callback` is called once, on some I/O thread, when the client goes away before the answer is complete.
  /// It must not block.
  virtual void on_gone(std::function<void()> callback) = 0;
};

/// What the server does with requests. All members are called on I/O threads and must not block.
class Handler {
 public:
  virtual ~Handler() = default;
  /// Called when the head of a request is there, before its body is read. An answer refuses the request.
  virtual std::optional<Response> admit(const Request& head) = 0;
  virtual void handle(Request request, std::shared_ptr<Responder> responder) = 0;
  /// An answer to what is no valid request: `status`, one sentence, and as much of the request as is known.
  virtual Response refuse(int status, std::string_view message, const Request& request) = 0;
};

/// "Not Found"; "Unknown" for a status without a name.
std::string_view reason_phrase(int status);
/// `%41` to `A`; a '+' stays. Nothing when an escape is cut or holds no hex digits.
std::optional<std::string> percent_decode(std::string_view text);
bool equal_ignoring_case(std::string_view a, std::string_view b);

/// How the body of an answer is delimited.
enum class Framing { length, chunked, until_close };
/// Status line and headers, up to and with the empty line. Line breaks in values become spaces.
std::string format_head(const Response& response, Framing framing, bool keep_alive);
/// One chunk of a chunked body; empty pieces give nothing.
std::string format_chunk(std::string_view piece);

}  // namespace quipu::server::http
