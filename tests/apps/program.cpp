#include "program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>

namespace quipu::test {
namespace {

std::vector<std::string> environment_of(const ProgramOptions& options) {
  std::vector<std::string> result;
  for (const char* name : {"PATH", "HOME", "LANG", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"})
    if (const char* value = std::getenv(name)) result.push_back(std::string(name) + "=" + value);
  result.insert(result.end(), options.environment.begin(), options.environment.end());
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// In the child, between fork and exec.
[[noreturn]] void become_program(const ProgramOptions& options, int in, int out, int err, char* const* argv,
                                 char* const* envp) {
  ::dup2(in, 0);
  if (!options.stdout_path.empty()) out = ::open(options.stdout_path.c_str(), O_WRONLY);
  ::dup2(out, 1);
  ::dup2(err, 2);
  ::closefrom(3);
  if (options.close_stdout) ::close(1);
  if (options.file_size_limit >= 0) {
    const auto limit = static_cast<rlim_t>(options.file_size_limit);
    const rlimit both{limit, limit};
    ::setrlimit(RLIMIT_FSIZE, &both);
  }
  ::execve(QUIPU_PROGRAM, argv, envp);
  ::_exit(126);
}

}  // namespace

ProgramResult quipu(const std::vector<std::string>& arguments, const ProgramOptions& options) {
  std::vector<std::string> words{"quipu"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = environment_of(options);
  const std::vector<char*> argv = pointers(words), envp = pointers(variables);
  int in[2], out[2], err[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0)
    throw std::runtime_error("pipe");
  std::signal(SIGPIPE, SIG_IGN);
  const pid_t child = ::fork();
  if (child == 0) become_program(options, in[0], out[1], err[1], argv.data(), envp.data());
  ::close(in[0]);
  ::close(out[1]);
  ::close(err[1]);

  ProgramResult result;
  std::string input = options.input;
  bool signalled = false;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  pollfd fds[3] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}, {in[1], POLLOUT, 0}};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    if (input.empty() && fds[2].fd >= 0) {
      ::close(fds[2].fd);
      fds[2].fd = -1;
    }
    ::poll(fds, 3, 1000);
    if (std::chrono::steady_clock::now() > deadline) ::kill(child, SIGKILL);
    char buffer[65536];
    for (int i = 0; i < 2; ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      const ssize_t count = ::read(fds[i].fd, buffer, sizeof buffer);
      if (count <= 0) {
        ::close(fds[i].fd);
        fds[i].fd = -1;
      } else {
        (i == 0 ? result.out : result.err).append(buffer, static_cast<std::size_t>(count));
      }
    }
    if (fds[2].fd >= 0 && fds[2].revents != 0) {
      const ssize_t count = ::write(fds[2].fd, input.data(), std::min<std::size_t>(input.size(), 4096));
      count <= 0 ? input.clear() : static_cast<void>(input.erase(0, static_cast<std::size_t>(count)));
    }
    if (options.signal_after_output != 0 && !signalled && !result.out.empty()) {
      signalled = true;
      ::kill(child, options.signal_after_output);
    }
  }
  if (fds[2].fd >= 0) ::close(fds[2].fd);
  int status = 0;
  rusage used{};
  ::wait4(child, &status, 0, &used);
  result.peak_memory = used.ru_maxrss;
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

bool is_one_error_line(const std::string& text) {
  return text.rfind("quipu: error: ", 0) == 0 && text.back() == '\n' &&
         std::count(text.begin(), text.end(), '\n') == 1;
}

}  // namespace quipu::test
