#include "server/request_error.hpp"

#include <new>

#include "core/error.hpp"
#include "core/log.hpp"
#include "server/engine_service.hpp"

namespace quipu::server {

int RequestError::status() const {
  if (http_status != 0) return http_status;
  switch (kind_) {
    case ErrorKind::invalid_request:
    case ErrorKind::context_overflow:
      return 400;
    case ErrorKind::unauthorized:
      return 401;
    case ErrorKind::forbidden:
      return 403;
    case ErrorKind::not_found:
    case ErrorKind::unknown_model:
      return 404;
    case ErrorKind::wrong_method:
      return 405;
    case ErrorKind::timeout:
      return 408;
    case ErrorKind::conflict:
      return 409;
    case ErrorKind::too_large:
      return 413;
    case ErrorKind::busy:
      return 429;
    case ErrorKind::unsupported:
      return 501;
    case ErrorKind::unavailable:
      return 503;
    case ErrorKind::internal:
      return 500;
  }
  return 500;
}

RequestError current_request_error() {
  try {
    throw;
  } catch (const RequestError& error) {
    return error;
  } catch (const QueueFull& error) {
    RequestError busy(ErrorKind::busy, error.message());
    busy.retry_after_seconds = error.retry_after_seconds();
    return busy;
  } catch (const Error& error) {
    switch (error.code()) {
      case ErrorCode::invalid_argument:
      case ErrorCode::unsupported:
      case ErrorCode::bad_file:
      case ErrorCode::checksum:
        return {ErrorKind::invalid_request, error.message()};
      case ErrorCode::context_overflow:
        return {ErrorKind::context_overflow, error.message()};
      case ErrorCode::not_found:
        return {ErrorKind::not_found, error.message()};
      case ErrorCode::cancelled:
        return {ErrorKind::unavailable, error.message()};
      default:
        return {ErrorKind::internal, error.message()};
    }
  } catch (const std::bad_alloc&) {
    return {ErrorKind::internal, "out of memory"};
  } catch (const std::exception& error) {
    log::error("unexpected: {}", error.what());
    return {ErrorKind::internal, "an internal error; the server's log says more"};
  }
}

}  // namespace quipu::server
