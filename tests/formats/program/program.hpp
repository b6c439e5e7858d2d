// Runs the quipu program and collects what it says.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "formats/gguf_shards.hpp"

namespace quipu::test {

struct Outcome {
  int status = -1;  ///< exit status; -1 when it ended by a signal
  std::string out, err;
};

inline std::string shell_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

/// Arguments as the shell takes them; quote paths with shell_quoted().
inline Outcome run_quipu(const std::string& arguments) {
  const TemporaryFolder folder;
  const std::string command = shell_quoted(QUIPU_PROGRAM) + " " + arguments + " >" +
                              shell_quoted(folder / "out") + " 2>" + shell_quoted(folder / "err") +
                              " </dev/null";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_bytes(folder / "out"),
          read_bytes(folder / "err")};
}

}  // namespace quipu::test
