#include "server/http/connection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/error.hpp>
#include <utility>

#include "core/error.hpp"
#include "core/log.hpp"

namespace quipu::server::http {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using boost::system::error_code;

namespace {

constexpr std::size_t kIdleRead = 1 << 10, kBodyRead = 64 << 10, kWriteAtOnce = 256 << 10;
/// Input that is thrown away behind a refusal, so that the client gets to read it before the reset.
constexpr std::size_t kMostLingered = 1 << 20;
constexpr std::chrono::milliseconds kLinger{2000};

/// Hands calls from any thread to the connection's strand.
class ConnectionResponder final : public Responder {
 public:
  ConnectionResponder(std::shared_ptr<Connection> connection, std::uint64_t exchange)
      : connection_(std::move(connection)), exchange_(exchange) {}
  ~ConnectionResponder() override {
    if (!complete_) post([](Connection& c, std::uint64_t e) { c.abandon(e); });
  }
  void respond(Response response) override {
    if (complete_.exchange(true)) return;
    post([r = std::move(response)](Connection& c, std::uint64_t e) mutable { c.respond(e, std::move(r)); });
  }
  void start(Response head) override {
    post([r = std::move(head)](Connection& c, std::uint64_t e) mutable { c.start_stream(e, std::move(r)); });
  }
  void write(std::string piece) override {
    post([p = std::move(piece)](Connection& c, std::uint64_t e) mutable { c.write(e, std::move(p)); });
  }
  void finish() override {
    if (complete_.exchange(true)) return;
    post([](Connection& c, std::uint64_t e) { c.finish(e); });
  }
  void on_gone(std::function<void()> callback) override {
    post([f = std::move(callback)](Connection& c, std::uint64_t e) mutable { c.on_gone(e, std::move(f)); });
  }

 private:
  template <class Call>
  void post(Call call) {
    asio::post(connection_->strand(), [connection = connection_, exchange = exchange_,
                                       call = std::move(call)]() mutable { call(*connection, exchange); });
  }
  std::shared_ptr<Connection> connection_;
  std::uint64_t exchange_;
  std::atomic<bool> complete_{false};
};

}  // namespace

void Connections::add(const std::shared_ptr<Connection>& connection) {
  const std::lock_guard lock(mutex_);
  open_.emplace(connection.get(), connection);
}
void Connections::remove(const Connection* connection) {
  const std::lock_guard lock(mutex_);
  open_.erase(connection);
}
std::size_t Connections::size() const {
  const std::lock_guard lock(mutex_);
  return open_.size();
}
std::vector<std::shared_ptr<Connection>> Connections::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Connection>> list;
  for (const auto& [key, weak] : open_) {
    if (auto connection = weak.lock()) list.push_back(std::move(connection));
  }
  return list;
}

Connection::Connection(Strand strand, std::unique_ptr<Stream> stream, std::string peer, Handler& handler,
                       const Limits& limits, Connections& connections)
    : strand_(std::move(strand)),
      stream_(std::move(stream)),
      peer_(std::move(peer)),
      handler_(handler),
      limits_(limits),
      connections_(connections),
      deadline_(strand_) {}

Connection::~Connection() { connections_.remove(this); }

void Connection::start() {
  asio::dispatch(strand_, [self = shared_from_this()] {
    self->set_deadline(self->limits_.handshake);
    self->stream_->handshake([self](error_code error) {
      if (self->state_ != State::handshake) return;
      if (error) return self->close();
      self->state_ = State::idle;
      self->process_input();
    });
  });
}

void Connection::drain() {
  asio::post(strand_, [self = shared_from_this()] {
    self->draining_ = true;
    self->keep_alive_ = false;
    if (self->state_ == State::idle) self->close();
  });
}

void Connection::stop() {
  asio::post(strand_, [self = shared_from_this()] { self->close(); });
}

// ---- time ----

void Connection::set_deadline(std::chrono::milliseconds after) {
  const std::uint64_t number = ++deadline_number_;
  deadline_.expires_after(after);
  deadline_.async_wait([self = shared_from_this(), number](error_code error) {
    if (!error && number == self->deadline_number_) self->on_deadline();
  });
}

void Connection::clear_deadline() {
  ++deadline_number_;
  deadline_.cancel();
}

void Connection::on_deadline() {
  switch (state_) {
    case State::head:
      return refuse(408, "the head of the request did not arrive in time");
    case State::body:
      return refuse(408, "the body of the request did not arrive in time");
    default:
      return close();
  }
}

// ---- input ----

void Connection::read_more(std::size_t bytes) {
  if (reading_ || state_ == State::closed) return;
  reading_ = true;
  input_.resize(filled_ + bytes);
  stream_->read_some(
      asio::buffer(input_.data() + filled_, bytes),
      [self = shared_from_this()](error_code error, std::size_t got) { self->on_read(error, got); });
}

void Connection::on_read(error_code error, std::size_t bytes) {
  reading_ = false;
  if (state_ == State::closed) return;
  if (state_ == State::lingering) {
    lingered_ += bytes;
    if (error || lingered_ > kMostLingered) return close();
    filled_ = 0;
    return read_more(kBodyRead);
  }
  // A client that ends its side while it waits is gone: nobody shuts down half of an HTTP connection.
  if (error) return close();
  filled_ += bytes;
  process_input();
}

void Connection::process_input() {
  switch (state_) {
    case State::idle:
      if (filled_ == 0) {
        if (draining_) return close();
        if (!reading_) input_ = {};
        set_deadline(limits_.idle);
        return read_more(kIdleRead);
      }
      state_ = State::head;
      parser_.emplace();
      parser_->header_limit(static_cast<std::uint32_t>(limits_.header_bytes));
      parser_->body_limit(limits_.body_bytes);
      set_deadline(limits_.header);
      return parse_head();
    case State::head:
      return parse_head();
    case State::body:
      return parse_body();
    default:
      return;  // answering: the next request waits in the buffer
  }
}

void Connection::parse_head() {
  error_code error;
  const std::size_t used = parser_->put(asio::const_buffer(input_.data(), filled_), error);
  input_.erase(0, used);
  filled_ -= used;
  if (error == beast_http::error::need_more) return read_more(kIdleRead * 4);
  if (error) return refuse_parse_error(error);
  if (!parser_->is_header_done()) return read_more(kIdleRead * 4);
  on_head();
}

Request Connection::request_head() const {
  Request request;
  request.peer = peer_;
  if (!parser_) return request;
  const auto& message = parser_->get();
  const auto method = message.method_string();
  request.method.assign(method.data(), method.size());
  std::string target(message.target().data(), message.target().size());
  const std::size_t question = target.find('?');
  if (question != std::string::npos) {
    request.query = target.substr(question + 1);
    target.resize(question);
  }
  request.path = percent_decode(target).value_or(target);
  for (const auto& field : message) {
    request.headers.push_back({std::string(field.name_string().data(), field.name_string().size()),
                               std::string(field.value().data(), field.value().size())});
  }
  return request;
}

void Connection::on_head() {
  keep_alive_ = parser_->keep_alive() && !draining_;
  can_chunk_ = parser_->get().version() >= 11;
  const Request head = request_head();
  head_only_ = head.method == "HEAD";
  if (auto answer = handler_.admit(head)) {
    answer->close = answer->close || !parser_->is_done();
    return send_whole(std::move(*answer));
  }
  const std::string_view expect = head.header("Expect");
  if (!expect.empty()) {
    if (!equal_ignoring_case(expect, "100-continue"))
      return refuse(417, fmt::format("Expect: {} is not understood", printable(expect, 60)));
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    flush();
  }
  state_ = State::body;
  // A body must not take longer than the slowest upload allowed.
  const std::uint64_t length = parser_->content_length().value_or(limits_.body_bytes);
  const std::uint64_t seconds = length / std::max<std::uint64_t>(limits_.body_rate, 1);
  set_deadline(limits_.body + std::chrono::milliseconds(1000 * seconds));
  parse_body();
}

void Connection::parse_body() {
  while (!parser_->is_done()) {
    error_code error;
    const std::size_t used = parser_->put(asio::const_buffer(input_.data(), filled_), error);
    input_.erase(0, used);
    filled_ -= used;
    if (error == beast_http::error::need_more) return read_more(kBodyRead);
    if (error) return refuse_parse_error(error);
    if (used == 0 && !parser_->is_done()) return read_more(kBodyRead);
  }
  on_request();
}

void Connection::on_request() {
  clear_deadline();
  Request request = request_head();
  request.body = std::move(parser_->get().body());
  parser_.reset();
  state_ = State::answering;
  ++exchange_;
  answer_complete_ = streaming_ = false;
  // Reading on shows when the client goes away.
  if (filled_ == 0) read_more(kIdleRead);
  auto responder = std::make_shared<ConnectionResponder>(shared_from_this(), exchange_);
  try {
    handler_.handle(std::move(request), responder);
  } catch (const std::exception& error) {
    log::error("a request handler failed: {}", error.what());  // the responder answers 500
  }
}

void Connection::refuse_parse_error(error_code error) {
  using Known = beast_http::error;
  if (error == Known::header_limit)
    return refuse(431, fmt::format("the head of the request exceeds {} bytes", limits_.header_bytes));
  if (error == Known::body_limit)
    return refuse(413, fmt::format("the body of the request exceeds {} bytes", limits_.body_bytes));
  if (error == Known::bad_version) return refuse(505, "expected HTTP/1.0 or HTTP/1.1");
  refuse(400, fmt::format("this is no HTTP request: {}", error.message()));
}

void Connection::refuse(int status, std::string_view message) {
  const Request head = request_head();
  Response answer = handler_.refuse(status, message, head);
  answer.close = true;
  send_whole(std::move(answer));
}

// ---- output ----

void Connection::send_whole(Response response) {
  clear_deadline();
  state_ = State::answering;
  if (response.close) keep_alive_ = false;
  out_ += format_head(response, Framing::length, keep_alive_);
  if (!head_only_) out_ += response.body;
  answer_complete_ = true;
  flush();
}

void Connection::respond(std::uint64_t exchange, Response response) {
  if (exchange != exchange_ || state_ != State::answering || answer_complete_ || streaming_) return;
  send_whole(std::move(response));
}

void Connection::start_stream(std::uint64_t exchange, Response head) {
  if (exchange != exchange_ || state_ != State::answering || answer_complete_ || streaming_) return;
  streaming_ = true;
  chunked_ = can_chunk_;
  if (head.close || !chunked_) keep_alive_ = false;
  out_ += format_head(head, chunked_ ? Framing::chunked : Framing::until_close, keep_alive_);
  write(exchange, std::move(head.body));
  flush();
}

void Connection::write(std::uint64_t exchange, std::string piece) {
  if (exchange != exchange_ || state_ != State::answering || !streaming_ || answer_complete_) return;
  if (head_only_) return;
  out_ += chunked_ ? format_chunk(piece) : piece;
  if (out_.size() > limits_.unsent_bytes) return close();  // its reader does not keep up
  flush();
}

void Connection::finish(std::uint64_t exchange) {
  if (exchange != exchange_ || state_ != State::answering || answer_complete_) return;
  if (chunked_ && !head_only_) out_ += "0\r\n\r\n";
  answer_complete_ = true;
  if (out_.empty() && !write_under_way_) return answer_done();
  flush();
}

void Connection::abandon(std::uint64_t exchange) {
  if (exchange != exchange_ || state_ != State::answering || answer_complete_) return;
  if (streaming_) return close();  // the missing end tells the client
  send_whole(handler_.refuse(500, "the request was dropped by an internal error", Request{}));
}

void Connection::on_gone(std::uint64_t exchange, std::function<void()> callback) {
  if (state_ == State::closed) return callback();
  if (exchange == exchange_ && state_ == State::answering && !answer_complete_) gone_ = std::move(callback);
}

void Connection::flush() {
  if (write_under_way_ || out_.empty() || state_ == State::closed) return;
  writing_ = std::exchange(out_, {});
  written_ = 0;
  write_next();
}

void Connection::write_next() {
  write_under_way_ = true;
  if (state_ == State::answering) set_deadline(limits_.write);
  const std::size_t bytes = std::min(kWriteAtOnce, writing_.size() - written_);
  stream_->write(
      asio::buffer(writing_.data() + written_, bytes),
      [self = shared_from_this()](error_code error, std::size_t n) { self->on_written(error, n); });
}

void Connection::on_written(error_code error, std::size_t bytes) {
  write_under_way_ = false;
  if (state_ == State::closed) return;
  if (error) return close();
  written_ += bytes;
  if (written_ < writing_.size()) return write_next();
  writing_ = {};
  if (!out_.empty()) return flush();
  if (state_ != State::answering) return;
  clear_deadline();
  if (answer_complete_) answer_done();
}

void Connection::answer_done() {
  gone_ = nullptr;
  parser_.reset();
  if (!keep_alive_) return linger();
  state_ = State::idle;
  if (reading_) {
    set_deadline(limits_.idle);  // the read that watched the client takes the next request
  } else {
    process_input();
  }
}

void Connection::linger() {
  state_ = State::lingering;
  set_deadline(kLinger);
  stream_->shut_down_sending([self = shared_from_this()](error_code error) {
    if (self->state_ != State::lingering) return;
    if (error) return self->close();
    self->filled_ = 0;
    self->read_more(kBodyRead);
  });
}

void Connection::call_gone() {
  if (auto callback = std::exchange(gone_, nullptr)) callback();
}

void Connection::close() {
  if (state_ == State::closed) return;
  state_ = State::closed;
  clear_deadline();
  stream_->close();
  connections_.remove(this);
  call_gone();
}

}  // namespace quipu::server::http
