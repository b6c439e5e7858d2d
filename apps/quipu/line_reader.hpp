// Lines from a person (with editing and history) or from a pipe.
#pragma once

#include <memory>
#include <string>

namespace quipu::app {

/// On a terminal: emacs-style editing and the history of this session, by libedit. From a pipe or file: plain
/// lines, no prompt. Needs an active `InterruptGuard`.
class LineReader {
 public:
  enum class Event { line, interrupted, end };

  explicit LineReader(std::string prompt);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// The next line without its newline; a line that ends with a backslash goes on in the next one.
  /// `interrupted`: Ctrl-C was pressed, what was typed is dropped.
  Event read(std::string& line);
  bool interactive() const { return state_ != nullptr; }

 private:
  struct State;
  Event read_one(std::string& line);
  Event read_plain(std::string& line);
  std::string prompt_;
  std::string buffered_;
  bool at_end_ = false;
  std::unique_ptr<State> state_;
};

/// While one lives, the terminal prints no "^C" into the answer.
class QuietControlKeys {
 public:
  QuietControlKeys();
  ~QuietControlKeys();
  QuietControlKeys(const QuietControlKeys&) = delete;
  QuietControlKeys& operator=(const QuietControlKeys&) = delete;

 private:
  bool changed_ = false;
};

}  // namespace quipu::app
