// HTTP(S) downloads by libcurl: redirects, proxies from the environment, resume, retries.
#pragma once

#include <cstdint>
#include <string>

#include "part_file.hpp"

namespace quipu::app {

struct HttpSource {
  std::string url;           ///< http or https
  std::string bearer_token;  ///< sent to the first host only; empty: none
};

/// Body of a small document. Throws `Error`: network (no connection, a status that is not 2xx: not_found for
/// 404), bad_file when it is longer than `max_bytes`.
std::string http_get(const HttpSource& source, std::size_t max_bytes = 16 << 20);

/// Appends the rest of the document to `part`, from where an earlier attempt ended if the server can resume,
/// from the start if not. A transfer that breaks off is continued, up to five times without progress in
/// between. `expected_bytes` 0: unknown; a document of another length is an error before anything is written.
/// Throws `Error`: network, not_found, io; the bytes that arrived stay in `part`.
void http_download(const HttpSource& source, PartFile& part, std::uint64_t expected_bytes,
                   const std::string& label);

/// "example.org" of a URL, for messages.
std::string host_of(const std::string& url);

}  // namespace quipu::app
