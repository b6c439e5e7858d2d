// Runs the built program as a user would, and looks at what it leaves.
#pragma once

#include <string>
#include <vector>

namespace quipu::test {

struct ProgramOptions {
  std::string input;                     ///< on standard input, then its end
  std::vector<std::string> environment;  ///< "NAME=value", on top of a clean one
  std::string stdout_path;               ///< a file in place of the captured pipe ("/dev/full")
  long file_size_limit = -1;             ///< RLIMIT_FSIZE, bytes
  int signal_after_output = 0;           ///< sent once the first bytes of output have come
  bool close_stdout = false;             ///< start with descriptor 1 closed
};

struct ProgramResult {
  int status = -1;  ///< exit status, 128 + signal when killed
  std::string out, err;
  long peak_memory = 0;  ///< most that was resident, in KiB
};

/// `quipu ARGUMENTS`; killed (status 137) after two minutes.
ProgramResult quipu(const std::vector<std::string>& arguments, const ProgramOptions& options = {});

/// True when `text` is exactly one line, "quipu: error: …".
bool is_one_error_line(const std::string& text);

}  // namespace quipu::test
