#include "http.hpp"

#include <curl/curl.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <exception>
#include <memory>
#include <thread>

#include "core/error.hpp"
#include "interrupt.hpp"
#include "progress.hpp"

namespace quipu::app {
namespace {

/// libcurl, loaded when something is to be fetched. It brings two dozen other libraries, which would take 4
/// MB and 2 ms of every start.
struct LibCurl {
  decltype(&curl_global_init) global_init;
  decltype(&curl_easy_init) easy_init;
  decltype(&curl_easy_cleanup) easy_cleanup;
  decltype(&curl_easy_setopt) easy_setopt;
  decltype(&curl_easy_getinfo) easy_getinfo;
  decltype(&curl_easy_perform) easy_perform;
  decltype(&curl_easy_strerror) easy_strerror;

  LibCurl() {
    void* library = ::dlopen(QUIPU_LIBCURL, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      fail(ErrorCode::unsupported, "nothing can be fetched without libcurl, which does not load: {}",
           printable(::dlerror()));
    find(library, "curl_global_init", global_init);
    find(library, "curl_easy_init", easy_init);
    find(library, "curl_easy_cleanup", easy_cleanup);
    find(library, "curl_easy_setopt", easy_setopt);
    find(library, "curl_easy_getinfo", easy_getinfo);
    find(library, "curl_easy_perform", easy_perform);
    find(library, "curl_easy_strerror", easy_strerror);
    if (global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) fail(ErrorCode::internal, "libcurl does not start");
  }

 private:
  template <class Function>
  static void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    if (function == nullptr) fail(ErrorCode::unsupported, "{} has no {}", QUIPU_LIBCURL, name);
  }
};

const LibCurl& curl() {
  static const LibCurl library;
  return library;
}

struct CurlDeleter {
  void operator()(CURL* handle) const { curl().easy_cleanup(handle); }
};
using Curl = std::unique_ptr<CURL, CurlDeleter>;

/// State that the callbacks of one transfer share.
struct Transfer {
  CURL* handle = nullptr;
  std::string* text = nullptr;  ///< http_get
  std::size_t max_bytes = 0;
  PartFile* part = nullptr;  ///< http_download
  ProgressBar* progress = nullptr;
  std::uint64_t expected_bytes = 0;
  std::uint64_t resumed_from = 0;
  std::uint64_t range_start = 0;  ///< of a 206 answer's Content-Range
  bool body_begun = false;
  std::exception_ptr failure;  ///< thrown inside a callback, rethrown outside of libcurl

  long status() const {
    long code = 0;
    curl().easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &code);
    return code;
  }
};

/// Decides, when the first byte of a 2xx body arrives, whether it continues the part or begins anew.
void begin_body(Transfer& transfer) {
  transfer.body_begun = true;
  PartFile& part = *transfer.part;
  const bool continues = transfer.resumed_from > 0 && transfer.status() == 206;
  if (continues && transfer.range_start != transfer.resumed_from)
    fail(ErrorCode::network, "the server resumed at byte {} instead of {}", transfer.range_start,
         transfer.resumed_from);
  if (!continues && part.size() > 0) part.restart();
  curl_off_t length = -1;
  curl().easy_getinfo(transfer.handle, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
  if (length < 0) return;
  const std::uint64_t total = part.size() + static_cast<std::uint64_t>(length);
  if (transfer.expected_bytes != 0 && total != transfer.expected_bytes)
    fail(ErrorCode::checksum, "the server offers {} bytes where {} are expected", total,
         transfer.expected_bytes);
  transfer.progress->set_total(total);
  part.require_space(static_cast<std::uint64_t>(length));
}

std::size_t on_data(char* data, std::size_t, std::size_t size, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  try {
    if (transfer.text != nullptr) {
      if (transfer.text->size() + size > transfer.max_bytes)
        fail(ErrorCode::bad_file, "the answer is longer than {} bytes", transfer.max_bytes);
      transfer.text->append(data, size);
      return size;
    }
    if (!transfer.body_begun) begin_body(transfer);
    if (transfer.expected_bytes != 0 && transfer.part->size() + size > transfer.expected_bytes)
      fail(ErrorCode::checksum, "the server sends more than the expected {} bytes", transfer.expected_bytes);
    transfer.part->append(data, size);
    transfer.progress->update(transfer.part->size());
    return size;
  } catch (...) {
    transfer.failure = std::current_exception();
    return 0;
  }
}

std::size_t on_header(char* data, std::size_t, std::size_t size, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::string_view line(data, size);
  constexpr std::string_view kName = "content-range: bytes ";
  bool matches = line.size() > kName.size();
  for (std::size_t i = 0; matches && i < kName.size(); ++i) {
    const char c = line[i];
    matches = (c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) == kName[i];
  }
  if (matches) std::from_chars(line.data() + kName.size(), line.data() + line.size(), transfer.range_start);
  return size;
}

int on_progress(void*, curl_off_t, curl_off_t, curl_off_t, curl_off_t) { return interrupted() ? 1 : 0; }

Curl make_handle(const HttpSource& source, Transfer& transfer, char* error_text) {
  Curl handle(curl().easy_init());
  if (!handle) fail(ErrorCode::internal, "libcurl does not start");
  transfer.handle = handle.get();
  error_text[0] = 0;
  // A download that began encrypted stays encrypted.
  const bool secure = source.url.compare(0, 8, "https://") == 0;
  curl().easy_setopt(handle.get(), CURLOPT_URL, source.url.c_str());
  curl().easy_setopt(handle.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl().easy_setopt(handle.get(), CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
  curl().easy_setopt(handle.get(), CURLOPT_FOLLOWLOCATION, 1L);
  curl().easy_setopt(handle.get(), CURLOPT_MAXREDIRS, 10L);
  curl().easy_setopt(handle.get(), CURLOPT_FAILONERROR, 1L);
  curl().easy_setopt(handle.get(), CURLOPT_NOSIGNAL, 1L);
  curl().easy_setopt(handle.get(), CURLOPT_CONNECTTIMEOUT, 20L);
  curl().easy_setopt(handle.get(), CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl().easy_setopt(handle.get(), CURLOPT_LOW_SPEED_TIME, 60L);
  curl().easy_setopt(handle.get(), CURLOPT_USERAGENT, "quipu/" QUIPU_VERSION);
  curl().easy_setopt(handle.get(), CURLOPT_ERRORBUFFER, error_text);
  curl().easy_setopt(handle.get(), CURLOPT_WRITEFUNCTION, on_data);
  curl().easy_setopt(handle.get(), CURLOPT_WRITEDATA, &transfer);
  curl().easy_setopt(handle.get(), CURLOPT_HEADERFUNCTION, on_header);
  curl().easy_setopt(handle.get(), CURLOPT_HEADERDATA, &transfer);
  curl().easy_setopt(handle.get(), CURLOPT_XFERINFOFUNCTION, on_progress);
  curl().easy_setopt(handle.get(), CURLOPT_NOPROGRESS, 0L);
  if (!source.bearer_token.empty()) {
    curl().easy_setopt(handle.get(), CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    curl().easy_setopt(handle.get(), CURLOPT_XOAUTH2_BEARER, source.bearer_token.c_str());
  }
  return handle;
}

[[noreturn]] void fail_transfer(const HttpSource& source, const Transfer& transfer, CURLcode code,
                                const char* error_text) {
  if (transfer.failure) {
    try {
      std::rethrow_exception(transfer.failure);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::io) throw;
      fail(error.code(), "{}: {}", host_of(source.url), error.message());
    }
  }
  if (code == CURLE_HTTP_RETURNED_ERROR) {
    const long status = transfer.status();
    if (status == 401 || status == 403)
      fail(ErrorCode::network, "{} refuses access (HTTP {}) to {}", host_of(source.url), status,
           printable(source.url));
    fail(status == 404 ? ErrorCode::not_found : ErrorCode::network, "{} answers HTTP {} for {}",
         host_of(source.url), status, printable(source.url));
  }
  fail(ErrorCode::network, "no download from {}: {}", host_of(source.url),
       printable(error_text[0] != 0 ? error_text : curl().easy_strerror(code)));
}

/// Whether another attempt may succeed where this one failed.
bool is_transient(CURLcode code, long status) {
  switch (code) {
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return true;
    case CURLE_HTTP_RETURNED_ERROR:
      return status == 429 || status >= 500;
    default:
      return false;
  }
}

}  // namespace

std::string host_of(const std::string& url) {
  const std::size_t scheme = url.find("://");
  const std::size_t begin = scheme == std::string::npos ? 0 : scheme + 3;
  std::string host = url.substr(begin, url.find_first_of("/?#", begin) - begin);
  host = host.substr(host.find('@') == std::string::npos ? 0 : host.find('@') + 1);
  return printable(host);
}

std::string http_get(const HttpSource& source, std::size_t max_bytes) {
  InterruptGuard guard;
  std::string text;
  Transfer transfer;
  transfer.text = &text;
  transfer.max_bytes = max_bytes;
  char error_text[CURL_ERROR_SIZE];
  const Curl handle = make_handle(source, transfer, error_text);
  const CURLcode code = curl().easy_perform(handle.get());
  exit_if_interrupted();
  if (code != CURLE_OK) fail_transfer(source, transfer, code, error_text);
  return text;
}

void http_download(const HttpSource& source, PartFile& part, std::uint64_t expected_bytes,
                   const std::string& label) {
  InterruptGuard guard;
  ProgressBar progress(label, expected_bytes);
  constexpr int kAttempts = 5;
  for (int failures = 0;;) {
    if (expected_bytes != 0 && part.size() == expected_bytes) return;
    if (expected_bytes != 0 && part.size() > expected_bytes) part.restart();
    if (expected_bytes != 0) part.require_space(expected_bytes - part.size());
    Transfer transfer;
    transfer.part = &part;
    transfer.progress = &progress;
    transfer.expected_bytes = expected_bytes;
    transfer.resumed_from = part.size();
    char error_text[CURL_ERROR_SIZE];
    const Curl handle = make_handle(source, transfer, error_text);
    if (part.size() > 0)
      curl().easy_setopt(handle.get(), CURLOPT_RANGE, fmt::format("{}-", part.size()).c_str());
    const CURLcode code = curl().easy_perform(handle.get());
    exit_if_interrupted();
    if (code == CURLE_OK) {
      if (expected_bytes == 0 || part.size() == expected_bytes) return;
      fail(ErrorCode::network, "{} sent {} of {} bytes", host_of(source.url), part.size(), expected_bytes);
    }
    // The part does not fit what the server has: it belongs to something else.
    if (code == CURLE_HTTP_RETURNED_ERROR && transfer.status() == 416 && part.size() > 0) {
      part.restart();
      continue;
    }
    failures = part.size() > transfer.resumed_from ? 1 : failures + 1;
    if (transfer.failure || failures >= kAttempts || !is_transient(code, transfer.status()))
      fail_transfer(source, transfer, code, error_text);
    std::this_thread::sleep_for(std::chrono::milliseconds(250 << failures));
  }
}

}  // namespace quipu::app
