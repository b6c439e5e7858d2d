#include "server/http/stream.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <utility>

namespace quipu::server::http {

namespace {

namespace asio = boost::asio;
using boost::system::error_code;

class PlainStream final : public Stream {
 public:
  explicit PlainStream(Socket socket) : socket_(std::move(socket)) {}
  void handshake(OnDone done) override {
    asio::post(socket_.get_executor(), [done = std::move(done)] { done({}); });
  }
  void read_some(asio::mutable_buffer buffer, OnBytes done) override {
    socket_.async_read_some(buffer, std::move(done));
  }
  void write(asio::const_buffer buffer, OnBytes done) override {
    asio::async_write(socket_, buffer, std::move(done));
  }
  void shut_down_sending(OnDone done) override {
    error_code error;
    socket_.shutdown(Socket::shutdown_send, error);
    asio::post(socket_.get_executor(), [done = std::move(done), error] { done(error); });
  }
  void close() override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  Socket socket_;
};

class TlsStream final : public Stream {
 public:
  TlsStream(Socket socket, asio::ssl::context& context) : stream_(std::move(socket), context) {}
  void handshake(OnDone done) override {
    stream_.async_handshake(asio::ssl::stream_base::server, std::move(done));
  }
  void read_some(asio::mutable_buffer buffer, OnBytes done) override {
    stream_.async_read_some(buffer, std::move(done));
  }
  void write(asio::const_buffer buffer, OnBytes done) override {
    asio::async_write(stream_, buffer, std::move(done));
  }
  void shut_down_sending(OnDone done) override { stream_.async_shutdown(std::move(done)); }
  void close() override {
    error_code ignored;
    stream_.next_layer().close(ignored);
  }

 private:
  asio::ssl::stream<Socket> stream_;
};

}  // namespace

std::unique_ptr<Stream> make_plain_stream(Socket socket) {
  return std::make_unique<PlainStream>(std::move(socket));
}

std::unique_ptr<Stream> make_tls_stream(Socket socket, asio::ssl::context& context) {
  return std::make_unique<TlsStream>(std::move(socket), context);
}

}  // namespace quipu::server::http
