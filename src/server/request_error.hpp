// What a client did wrong, before a dialect gives it its own form.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace quipu::server {

/// Kinds that clients tell apart; each has one HTTP status and, in each dialect, a code.
enum class ErrorKind {
  invalid_request,   ///< 400
  context_overflow,  ///< 400
  unauthorized,      ///< 401
  forbidden,         ///< 403
  not_found,         ///< 404: a path
  unknown_model,     ///< 404
  wrong_method,      ///< 405
  timeout,           ///< 408
  conflict,          ///< 409: the thing asked for is busy
  too_large,         ///< 413, 431
  busy,              ///< 429
  unsupported,       ///< 501: well-formed, but this server cannot do it
  unavailable,       ///< 503: loading, or shutting down
  internal,          ///< 500
};

/// Thrown on the way of a request; the dialect turns it into its own error object.
class RequestError : public std::exception {
 public:
  RequestError(ErrorKind kind, std::string message, std::string parameter = {})
      : kind_(kind), message_(std::move(message)), parameter_(std::move(parameter)) {}

  ErrorKind kind() const { return kind_; }
  int status() const;
  const std::string& message() const { return message_; }
  const char* what() const noexcept override { return message_.c_str(); }
  /// Name of the field at fault; empty when it is not one field.
  const std::string& parameter() const { return parameter_; }

  int http_status = 0;          ///< in place of the kind's own status; 0: the kind's
  int retry_after_seconds = 0;  ///< for busy and unavailable; 0: not said
  /// For context_overflow: tokens of the prompt, and what the context holds.
  std::int64_t prompt_tokens = 0, context = 0;

 private:
  ErrorKind kind_;
  std::string message_, parameter_;
};

/// A 400 that names the field at fault.
template <class... Args>
[[noreturn]] void bad_field(std::string parameter, fmt::format_string<Args...> format, Args&&... args) {
  throw RequestError(ErrorKind::invalid_request, fmt::format(format, std::forward<Args>(args)...),
                     std::move(parameter));
}

/// The exception under way as a RequestError: quipu::Error and the like are mapped. Call inside a handler.
RequestError current_request_error();

}  // namespace quipu::server
