// One connection: requests in, answers out, in turn. Only for the files of this folder.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "server/http/http_server.hpp"
#include "server/http/stream.hpp"

namespace quipu::server::http {

class Connection;

/// The connections that are open. Thread-safe.
class Connections {
 public:
  void add(const std::shared_ptr<Connection>& connection);
  void remove(const Connection* connection);
  std::size_t size() const;
  std::vector<std::shared_ptr<Connection>> all() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const Connection*, std::weak_ptr<Connection>> open_;
};

/// Everything but `start`, `drain` and `stop` runs on the connection's strand.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;

  Connection(Strand strand, std::unique_ptr<Stream> stream, std::string peer, Handler& handler,
             const Limits& limits, Connections& connections);
  ~Connection();

  void start();
  void drain();  ///< closes when idle, otherwise behind the answer under way
  void stop();   ///< closes now
  const Strand& strand() const { return strand_; }

  // For the responder of exchange number `exchange`; calls for another one are ignored.
  void respond(std::uint64_t exchange, Response response);
  void start_stream(std::uint64_t exchange, Response head);
  void write(std::uint64_t exchange, std::string piece);
  void finish(std::uint64_t exchange);
  void abandon(std::uint64_t exchange);
  void on_gone(std::uint64_t exchange, std::function<void()> callback);

 private:
  enum class State { handshake, idle, head, body, answering, lingering, closed };
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  void set_deadline(std::chrono::milliseconds after);
  void clear_deadline();
  void on_deadline();
  void read_more(std::size_t bytes);
  void on_read(boost::system::error_code error, std::size_t bytes);
  void process_input();
  void parse_head();
  void parse_body();
  void on_head();
  void on_request();
  Request request_head() const;
  void refuse(int status, std::string_view message);
  void refuse_parse_error(boost::system::error_code error);
  void send_whole(Response response);
  void flush();
  void write_next();
  void on_written(boost::system::error_code error, std::size_t bytes);
  void answer_done();
  void linger();
  void close();
  void call_gone();

  Strand strand_;
  std::unique_ptr<Stream> stream_;
  std::string peer_;
  Handler& handler_;
  const Limits& limits_;
  Connections& connections_;
  boost::asio::steady_timer deadline_;
  std::uint64_t deadline_number_ = 0;

  State state_ = State::handshake;
  bool draining_ = false;
  std::string input_;  // [0, filled_) is unread input; a read under way fills what is behind
  std::size_t filled_ = 0, lingered_ = 0;
  bool reading_ = false;
  std::optional<Parser> parser_;

  std::uint64_t exchange_ = 0;  // number of the request being answered
  bool keep_alive_ = true, head_only_ = false, can_chunk_ = true, chunked_ = false, streaming_ = false;
  bool answer_complete_ = false;
  std::string out_, writing_;
  std::size_t written_ = 0;
  bool write_under_way_ = false;
  std::function<void()> gone_;
};

}  // namespace quipu::server::http
