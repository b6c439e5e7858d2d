// Writing results to standard output, and what the terminal is.
#pragma once

#include <string_view>

namespace quipu::app {

/// Ends the program with this status, from anywhere below main, without a message.
struct Exit {
  int status;
};

/// Writes all of `text` at once, unbuffered. A reader that went away ends the program quietly (status 141, as
/// the shell reports SIGPIPE); any other failure throws `Error` (io).
void write_stdout(std::string_view text);
/// Messages for people; failures are ignored.
void write_stderr(std::string_view text);

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();

/// Opens whichever of descriptors 0-2 are closed, so that no file of ours gets their numbers, and ignores
/// SIGPIPE. Writing to a standard output that was closed stays an error.
void prepare_standard_streams();

}  // namespace quipu::app
