// One connected socket, with or without TLS. Only for the files of this folder: it shows Boost.Asio.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <functional>
#include <memory>

namespace boost::asio::ssl {
class context;
}

namespace quipu::server::http {

using Socket = boost::asio::generic::stream_protocol::socket;

/// Completion handlers run on the socket's executor, never inside the call that started the operation. One
/// read and one write may be under way together.
class Stream {
 public:
  using OnBytes = std::function<void(boost::system::error_code, std::size_t)>;
  using OnDone = std::function<void(boost::system::error_code)>;

  virtual ~Stream() = default;
  virtual void handshake(OnDone done) = 0;
  virtual void read_some(boost::asio::mutable_buffer buffer, OnBytes done) = 0;
  virtual void write(boost::asio::const_buffer buffer, OnBytes done) = 0;  ///< all of it
  /// Tells the peer that nothing follows.
  virtual void shut_down_sending(OnDone done) = 0;
  virtual void close() = 0;
};

std::unique_ptr<Stream> make_plain_stream(Socket socket);
std::unique_ptr<Stream> make_tls_stream(Socket socket, boost::asio::ssl::context& context);

}  // namespace quipu::server::http
