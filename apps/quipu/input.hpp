// Reading text from files and standard input.
#pragma once

#include <string>

namespace quipu::app {

/// All bytes of a file or a pipe; "-" means standard input. Throws `Error` (not_found, io).
std::string read_text_file(const std::string& path);
/// All bytes of standard input.
std::string read_standard_input();
/// \n \t \r \\ \" \' become the characters they name; other backslashes stay.
std::string unescape(const std::string& text);

}  // namespace quipu::app
