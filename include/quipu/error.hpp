// The one exception type of quipu.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace quipu {

enum class ErrorCode {
  invalid_argument,  ///< a flag, parameter or API argument is out of range
  not_found,         ///< a file, model name or key does not exist
  io,                ///< the operating system refused a read, write or map
  bad_file,          ///< bytes of a file contradict their format
  unsupported,       ///< well-formed, but quipu cannot do it (unknown architecture, dtype, op)
  out_of_memory,     ///< a memory budget or the machine's memory is exhausted
  context_overflow,  ///< more tokens than the context holds
  network,           ///< a download failed
  checksum,          ///< bytes differ from their recorded digest
  cancelled,         ///< the caller asked to stop
  internal,          ///< a broken invariant: a bug in quipu
};

std::string_view to_string(ErrorCode code);

/// Thrown for every bad input. The message is one sentence that names the file, key, offset or parameter,
/// what was found and what was expected.
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}
  ErrorCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  ErrorCode code_;
  std::string message_;
};

}  // namespace quipu
