// Who may use the server: API keys and web origins.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http.hpp"

namespace quipu::server {

/// Secrets that open the server. Only their SHA-256 digests are kept; a key is compared with all of them in
/// constant time, so that neither its length nor its first bytes show in the time.
class ApiKeys {
 public:
  /// Throws `Error` (invalid_argument) for an empty key or one with white space or control characters.
  void add(std::string_view key);
  /// One key a line; empty lines and lines that start with # are left out. Throws `Error` (not_found, io,
  /// invalid_argument).
  void add_file(const std::filesystem::path& path);

  bool required() const { return !digests_.empty(); }
  /// Number of the key, from 0; nothing when it is none of them.
  std::optional<std::size_t> match(std::string_view key) const;
  /// The key that a request carries: `Authorization: Bearer KEY`, `x-api-key: KEY` or `api-key: KEY`; empty
  /// when it has none.
  static std::string_view from(const http::Request& request);

 private:
  std::vector<std::array<unsigned char, 32>> digests_;
};

/// Which web pages may call the server from a browser. Requests without an `Origin` come from no page.
class Origins {
 public:
  /// "https://chat.example", "http://localhost:*" (any port), or "*" for all. Throws `Error`
  /// (invalid_argument).
  void allow(std::string_view origin);
  /// Host names, besides loopback names and IP addresses, under which the server's own pages are reached.
  void allow_host(std::string_view host) { hosts_.emplace_back(host); }

  enum class Verdict {
    none,     ///< no Origin: nothing to decide
    same,     ///< the server's own page
    allowed,  ///< gets CORS headers
    foreign,  ///< gets nothing
  };
  Verdict judge(const http::Request& request) const;
  /// Headers that let the page at `origin` read an answer.
  std::vector<http::Header> headers(std::string_view origin) const;
  /// Those, and what a preflight asks for.
  std::vector<http::Header> preflight_headers(const http::Request& request) const;

 private:
  bool listed(std::string_view origin) const;
  std::vector<std::string> allowed_, hosts_;
  bool any_ = false;
};

}  // namespace quipu::server
