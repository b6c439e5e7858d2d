#include "input.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "core/error.hpp"
#include "core/mapped_file.hpp"

namespace quipu::app {

namespace {

std::string read_to_end(int descriptor, const std::string& name) {
  std::string text;
  std::array<char, 65536> buffer;
  while (true) {
    const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(ErrorCode::io, "cannot read {}: {}", name, std::strerror(errno));
    if (count == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

/// What a shell gives for <(command).
std::string read_pipe(const std::string& path) {
  const std::string name = fmt::format("\"{}\"", printable(path));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (!pipe) fail(ErrorCode::io, "cannot open {}: {}", name, std::strerror(errno));
  return read_to_end(::fileno(pipe.get()), name);
}

}  // namespace

std::string read_text_file(const std::string& path) {
  if (path == "-") return read_standard_input();
  std::error_code error;
  if (std::filesystem::is_fifo(path, error)) return read_pipe(path);
  const MappedFile file(path, MappedFile::Mode::read);
  const auto bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string read_standard_input() { return read_to_end(STDIN_FILENO, "standard input"); }

std::string unescape(const std::string& text) {
  static constexpr std::string_view kLetters = "ntr\\\"'", kMeanings = "\n\t\r\\\"'";
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t which =
        text[i] == '\\' && i + 1 < text.size() ? kLetters.find(text[i + 1]) : std::string_view::npos;
    if (which == std::string_view::npos) {
      result += text[i];
    } else {
      result += kMeanings[which];
      ++i;
    }
  }
  return result;
}

}  // namespace quipu::app
