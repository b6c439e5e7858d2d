#include "server/http/http_server.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "core/error.hpp"
#include "core/log.hpp"
#include "server/http/connection.hpp"

namespace quipu::server::http {

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::local::stream_protocol;
using boost::system::error_code;

namespace {

constexpr std::string_view kUnixPrefix = "unix:";
/// Descriptors left for files, the model and listeners.
constexpr std::size_t kReservedDescriptors = 64;
constexpr std::chrono::milliseconds kAcceptPause{100};

/// Connections that the limit on open files allows, after raising it.
std::size_t raise_descriptor_limit() {
  struct rlimit limit {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  constexpr rlim_t kWanted = 65536;
  const rlim_t wanted = std::min(limit.rlim_max, std::max(limit.rlim_cur, kWanted));
  if (wanted > limit.rlim_cur) {
    limit.rlim_cur = wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  const auto now = static_cast<std::size_t>(limit.rlim_cur);
  return now > 2 * kReservedDescriptors ? now - kReservedDescriptors : now / 2;
}

void load_certificate(asio::ssl::context& context, const HttpOptions& options) {
  if (options.tls_certificate.empty() || options.tls_key.empty())
    fail(ErrorCode::invalid_argument, "TLS needs both a certificate and a key, only one is given");
  for (const auto& path : {options.tls_certificate, options.tls_key}) {
    if (access(path.c_str(), R_OK) != 0)
      fail(ErrorCode::not_found, "{} cannot be read", printable(path.string()));
  }
  context.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                      asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                      asio::ssl::context::no_tlsv1_1);
  error_code error;
  context.use_certificate_chain_file(options.tls_certificate.string(), error);
  if (error)
    fail(ErrorCode::bad_file, "{} is no PEM certificate chain: {}",
         printable(options.tls_certificate.string()), error.message());
  context.use_private_key_file(options.tls_key.string(), asio::ssl::context::pem, error);
  if (error)
    fail(ErrorCode::bad_file, "{} is no PEM private key of the certificate: {}",
         printable(options.tls_key.string()), error.message());
}

std::string describe(const tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  return endpoint.address().is_v6() ? fmt::format("[{}]:{}", host, endpoint.port())
                                    : fmt::format("{}:{}", host, endpoint.port());
}

/// A socket file that nobody listens on any more may be replaced; any other file may not.
void remove_stale_socket(asio::io_context& io, const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return;
  if (!S_ISSOCK(info.st_mode)) fail(ErrorCode::io, "{} exists and is no socket", printable(path));
  stream_protocol::socket probe(io);
  error_code error;
  probe.connect(stream_protocol::endpoint(path), error);
  if (!error) fail(ErrorCode::io, "another process listens on {}", printable(path));
  unlink(path.c_str());
}

}  // namespace

struct HttpServer::Impl {
  Impl(HttpOptions o, Handler& h) : options(std::move(o)), handler(h), io(options.threads) {}

  HttpOptions options;
  Handler& handler;
  Connections connections;  // outlives what the context still holds
  asio::io_context io;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;
  std::optional<asio::ssl::context> tls;
  std::vector<tcp::acceptor> tcp_acceptors;
  std::optional<stream_protocol::acceptor> unix_acceptor;
  std::string unix_path, address;
  std::uint16_t port = 0;
  std::size_t most_connections = 0;
  std::atomic<bool> closing{false};
  std::vector<std::thread> threads;

  void listen_tcp();
  void listen_unix();
  template <class Acceptor>
  void accept(Acceptor& acceptor);
  template <class Acceptor>
  void accept_later(Acceptor& acceptor);
  void open(Connection::Strand strand, Socket socket, std::string peer);
  void close_acceptors();
};

void HttpServer::Impl::listen_tcp() {
  tcp::resolver resolver(io);
  error_code error;
  const auto found = resolver.resolve(options.host, std::to_string(options.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error)
    fail(ErrorCode::invalid_argument, "--host {} does not resolve: {}", printable(options.host),
         error.message());
  port = options.port;
  std::string reason;
  for (const auto& entry : found) {
    tcp::endpoint endpoint = entry.endpoint();
    endpoint.port(port);
    tcp::acceptor acceptor(io);
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error && endpoint.address().is_v6()) acceptor.set_option(asio::ip::v6_only(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(4096, error);
    if (error) {
      reason = fmt::format("{}: {}", describe(endpoint), error.message());
      continue;
    }
    port = acceptor.local_endpoint().port();  // of 0: the same for the host's other addresses
    if (address.empty())
      address = fmt::format("{}://{}", tls ? "https" : "http", describe(acceptor.local_endpoint()));
    tcp_acceptors.push_back(std::move(acceptor));
  }
  if (tcp_acceptors.empty()) fail(ErrorCode::io, "cannot listen on {}", reason);
}

void HttpServer::Impl::listen_unix() {
  unix_path = options.host.substr(kUnixPrefix.size());
  if (unix_path.empty() || unix_path.size() >= sizeof(sockaddr_un{}.sun_path))
    fail(ErrorCode::invalid_argument, "--host {}: expected unix: and a path of 1 to {} bytes",
         printable(options.host), sizeof(sockaddr_un{}.sun_path) - 1);
  remove_stale_socket(io, unix_path);
  error_code error;
  stream_protocol::acceptor acceptor(io);
  acceptor.open(stream_protocol(), error);
  // Only this user may connect until somebody changes the mode.
  const mode_t mask = umask(0177);
  if (!error) acceptor.bind(stream_protocol::endpoint(unix_path), error);
  umask(mask);
  if (!error) acceptor.listen(4096, error);
  if (error) fail(ErrorCode::io, "cannot listen on {}: {}", printable(unix_path), error.message());
  address = options.host;
  unix_acceptor.emplace(std::move(acceptor));
}

template <class Acceptor>
void HttpServer::Impl::accept_later(Acceptor& acceptor) {
  auto timer = std::make_shared<asio::steady_timer>(io, kAcceptPause);
  timer->async_wait([this, &acceptor, timer](error_code) { accept(acceptor); });
}

template <class Acceptor>
void HttpServer::Impl::accept(Acceptor& acceptor) {
  if (closing) return;
  if (connections.size() >= most_connections) return accept_later(acceptor);
  auto strand = asio::make_strand(io);
  acceptor.async_accept(strand, [this, &acceptor, strand](error_code error, auto socket) {
    if (closing) return;
    if (error) {
      if (error != asio::error::connection_aborted)
        log::warning("a connection could not be taken: {}", error.message());
      return accept_later(acceptor);
    }
    std::string peer = "unix";
    if constexpr (std::is_same_v<typename decltype(socket)::protocol_type, tcp>) {
      error_code ignored;
      const auto endpoint = socket.remote_endpoint(ignored);
      if (!ignored) peer = describe(endpoint);
      socket.set_option(tcp::no_delay(true), ignored);
      socket.set_option(asio::socket_base::keep_alive(true), ignored);
    }
    open(strand, Socket(std::move(socket)), std::move(peer));
    accept(acceptor);
  });
}

void HttpServer::Impl::open(Connection::Strand strand, Socket socket, std::string peer) {
  auto stream = tls ? make_tls_stream(std::move(socket), *tls) : make_plain_stream(std::move(socket));
  auto connection = std::make_shared<Connection>(std::move(strand), std::move(stream), std::move(peer),
                                                 handler, options.limits, connections);
  connections.add(connection);
  connection->start();
}

void HttpServer::Impl::close_acceptors() {
  closing = true;
  asio::post(io, [this] {
    error_code ignored;
    for (tcp::acceptor& acceptor : tcp_acceptors) acceptor.close(ignored);
    if (unix_acceptor) unix_acceptor->close(ignored);
  });
}

HttpServer::HttpServer(HttpOptions options, Handler& handler)
    : impl_(std::make_unique<Impl>(std::move(options), handler)) {
  Impl& s = *impl_;
  const std::size_t possible = raise_descriptor_limit();
  s.most_connections =
      s.options.limits.connections > 0 ? std::min(s.options.limits.connections, possible) : possible;
  if (!s.options.tls_certificate.empty() || !s.options.tls_key.empty()) {
    s.tls.emplace(asio::ssl::context::tls_server);
    load_certificate(*s.tls, s.options);
  }
  s.options.host.rfind(kUnixPrefix, 0) == 0 ? s.listen_unix() : s.listen_tcp();
}

HttpServer::~HttpServer() { stop(); }

void HttpServer::stop() {
  Impl& s = *impl_;
  s.close_acceptors();
  for (const auto& connection : s.connections.all()) connection->stop();
  s.work.reset();
  for (std::thread& thread : s.threads) thread.join();
  s.threads.clear();
  if (!s.unix_path.empty()) unlink(s.unix_path.c_str());
  s.unix_path.clear();
}

void HttpServer::start() {
  Impl& s = *impl_;
  s.work.emplace(s.io.get_executor());
  for (tcp::acceptor& acceptor : s.tcp_acceptors) s.accept(acceptor);
  if (s.unix_acceptor) s.accept(*s.unix_acceptor);
  for (int i = 0; i < s.options.threads; ++i)
    s.threads.emplace_back([&s] {
      while (true) {
        try {
          s.io.run();
          return;
        } catch (const std::exception& error) {
          log::error("an I/O handler failed: {}", error.what());
        }
      }
    });
}

const std::string& HttpServer::address() const { return impl_->address; }
std::uint16_t HttpServer::port() const { return impl_->port; }
std::size_t HttpServer::connections() const { return impl_->connections.size(); }

void HttpServer::drain() {
  impl_->close_acceptors();
  for (const auto& connection : impl_->connections.all()) connection->drain();
}

}  // namespace quipu::server::http
