#include "server/access.hpp"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/mapped_file.hpp"

namespace quipu::server {

namespace {

std::array<unsigned char, 32> digest(std::string_view text) {
  std::array<unsigned char, 32> out{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data());
  return out;
}

bool ends_with_any_port(std::string_view pattern) {
  return pattern.size() > 2 && pattern.substr(pattern.size() - 2) == ":*";
}

/// "example.org" of "example.org:8080", "[::1]" of "[::1]:80".
std::string_view without_port(std::string_view host) {
  const std::size_t bracket = host.rfind(']');
  const std::size_t colon = host.rfind(':');
  if (colon == std::string_view::npos || (bracket != std::string_view::npos && colon < bracket)) return host;
  return host.substr(0, colon);
}

/// Numbers and dots, or brackets: an address needs no name that somebody else could point here.
bool is_address(std::string_view host) {
  if (!host.empty() && host.front() == '[') return true;
  return !host.empty() &&
         std::all_of(host.begin(), host.end(), [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
}

}  // namespace

void ApiKeys::add(std::string_view key) {
  const bool bad = key.empty() || std::any_of(key.begin(), key.end(), [](char c) {
                     return static_cast<unsigned char>(c) <= 0x20 || c == 0x7F;
                   });
  if (bad)
    fail(ErrorCode::invalid_argument,
         "an API key of {} bytes is empty or holds white space; expected printable characters", key.size());
  digests_.push_back(digest(key));
}

void ApiKeys::add_file(const std::filesystem::path& path) {
  const MappedFile file(path, MappedFile::Mode::read);
  std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::size_t keys = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    while (!line.empty() && static_cast<unsigned char>(line.back()) <= 0x20) line.remove_suffix(1);
    while (!line.empty() && static_cast<unsigned char>(line.front()) <= 0x20) line.remove_prefix(1);
    if (line.empty() || line.front() == '#') continue;
    add(line);
    ++keys;
  }
  if (keys == 0)
    fail(ErrorCode::invalid_argument, "{} holds no API key; expected one a line", printable(path.string()));
}

std::optional<std::size_t> ApiKeys::match(std::string_view key) const {
  const auto wanted = digest(key);
  std::size_t found = digests_.size();
  for (std::size_t i = 0; i < digests_.size(); ++i) {
    if (CRYPTO_memcmp(digests_[i].data(), wanted.data(), wanted.size()) == 0) found = i;
  }
  if (found == digests_.size()) return std::nullopt;
  return found;
}

std::string_view ApiKeys::from(const http::Request& request) {
  const std::string_view authorization = request.header("Authorization");
  constexpr std::string_view kBearer = "Bearer ";
  if (authorization.size() > kBearer.size() &&
      http::equal_ignoring_case(authorization.substr(0, kBearer.size()), kBearer))
    return authorization.substr(kBearer.size());
  for (const std::string_view name : {"x-api-key", "api-key"}) {
    if (request.has_header(name)) return request.header(name);
  }
  return {};
}

void Origins::allow(std::string_view origin) {
  while (!origin.empty() && origin.back() == '/') origin.remove_suffix(1);
  if (origin == "*") {
    any_ = true;
    return;
  }
  if (origin.find("://") == std::string_view::npos && origin != "null")
    fail(ErrorCode::invalid_argument,
         "--cors-origin {}: expected an origin such as https://chat.example, or * for all",
         printable(origin, 100));
  allowed_.emplace_back(origin);
}

bool Origins::listed(std::string_view origin) const {
  return any_ || std::any_of(allowed_.begin(), allowed_.end(), [&](std::string_view pattern) {
           if (!ends_with_any_port(pattern)) return http::equal_ignoring_case(pattern, origin);
           const std::string_view start = pattern.substr(0, pattern.size() - 2);
           const std::string_view rest =
               origin.size() > start.size() ? origin.substr(start.size()) : std::string_view();
           if (!http::equal_ignoring_case(origin.substr(0, start.size()), start)) return false;
           return rest.empty() || (rest.front() == ':' && rest.size() > 1 &&
                                   rest.find_first_not_of("0123456789", 1) == std::string_view::npos);
         });
}

Origins::Verdict Origins::judge(const http::Request& request) const {
  if (!request.has_header("Origin")) return Verdict::none;
  const std::string_view origin = request.header("Origin");
  if (listed(origin)) return Verdict::allowed;
  // The page of this server itself. A name must be known: a foreign name that resolves to this machine is
  // DNS rebinding.
  const std::size_t scheme = origin.find("://");
  const std::string_view host = request.header("Host");
  if (scheme == std::string_view::npos || host.empty()) return Verdict::foreign;
  if (!http::equal_ignoring_case(origin.substr(scheme + 3), host)) return Verdict::foreign;
  const std::string_view name = without_port(host);
  const bool known = is_address(name) || http::equal_ignoring_case(name, "localhost") ||
                     std::any_of(hosts_.begin(), hosts_.end(), [&](std::string_view mine) {
                       return http::equal_ignoring_case(mine, name);
                     });
  return known ? Verdict::same : Verdict::foreign;
}

std::vector<http::Header> Origins::headers(std::string_view origin) const {
  return {{"Access-Control-Allow-Origin", std::string(origin)},
          {"Vary", "Origin"},
          {"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"}};
}

std::vector<http::Header> Origins::preflight_headers(const http::Request& request) const {
  std::vector<http::Header> list = headers(request.header("Origin"));
  list.push_back({"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"});
  // With "Authorization" a star would not do.
  const std::string_view asked = request.header("Access-Control-Request-Headers");
  list.push_back(
      {"Access-Control-Allow-Headers", asked.empty() ? "Authorization, Content-Type" : std::string(asked)});
  list.push_back({"Access-Control-Max-Age", "600"});
  return list;
}

}  // namespace quipu::server
