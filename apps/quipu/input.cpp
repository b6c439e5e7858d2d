#include "input.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/error.hpp"
#include "core/mapped_file.hpp"

namespace quipu::app {

std::string read_text_file(const std::string& path) {
  if (path == "-") return read_standard_input();
  const MappedFile file(path, MappedFile::Mode::read);
  const auto bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string read_standard_input() {
  std::string text;
  std::array<char, 65536> buffer;
  while (true) {
    const ssize_t count = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(ErrorCode::io, "cannot read standard input: {}", std::strerror(errno));
    if (count == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

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
