#include "line_reader.hpp"

#include <histedit.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <cwchar>

#include "core/error.hpp"
#include "interrupt.hpp"
#include "output.hpp"

namespace quipu::app {
namespace {

/// One character from the terminal; unlike libedit's own reader it returns when Ctrl-C is pressed.
int read_character(EditLine*, wchar_t* out) {
  std::mbstate_t state{};
  while (true) {
    char byte = 0;
    const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
    if (count == 0) return 0;
    if (count < 0) {
      if (errno == EINTR && !interrupted()) continue;
      return -1;
    }
    const std::size_t length = std::mbrtowc(out, &byte, 1, &state);
    if (length == 1 || length == 0) return 1;
    if (length == static_cast<std::size_t>(-1)) state = {};  // not a character: drop it
  }
}

}  // namespace

struct LineReader::State {
  EditLine* editor = nullptr;
  History* history = nullptr;
  HistEvent event{};
  std::string* prompt = nullptr;
  bool continued = false;

  explicit State(std::string* text) : prompt(text) {
    history = history_init();
    editor = el_init("quipu", stdin, stdout, stderr);
    if (editor == nullptr || history == nullptr)
      fail(ErrorCode::io, "cannot set up line editing on this terminal");
    ::history(history, &event, H_SETSIZE, 1000);
    el_set(editor, EL_CLIENTDATA, this);
    el_set(editor, EL_PROMPT, &State::show_prompt);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_SIGNAL, 0);
    el_set(editor, EL_HIST, ::history, history);
    el_set(editor, EL_GETCFN, &read_character);
    el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_source(editor, nullptr);
  }
  ~State() {
    if (editor != nullptr) el_end(editor);
    if (history != nullptr) history_end(history);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  static char* show_prompt(EditLine* editor) {
    static char continuation[] = ". ";
    State* state = nullptr;
    el_get(editor, EL_CLIENTDATA, &state);
    return state->continued ? continuation : state->prompt->data();
  }
};

LineReader::LineReader(std::string prompt) : prompt_(std::move(prompt)) {
  if (stdin_is_terminal() && stdout_is_terminal()) state_ = std::make_unique<State>(&prompt_);
}
LineReader::~LineReader() = default;

LineReader::Event LineReader::read(std::string& line) {
  line.clear();
  if (state_) state_->continued = false;
  while (true) {
    std::string part;
    const Event event = read_one(part);
    if (event == Event::interrupted || (event == Event::end && line.empty())) return event;
    line += part;
    if (event == Event::end || line.empty() || line.back() != '\\') break;
    line.back() = '\n';
    if (state_) state_->continued = true;
  }
  if (state_ && line.find_first_not_of(" \t") != std::string::npos && line.find('\n') == std::string::npos)
    ::history(state_->history, &state_->event, H_ENTER, line.c_str());
  return Event::line;
}

LineReader::Event LineReader::read_one(std::string& line) {
  if (!state_) return read_plain(line);
  int count = 0;
  errno = 0;
  const char* text = el_gets(state_->editor, &count);
  if (interrupted()) {
    clear_interrupt();
    el_reset(state_->editor);
    return Event::interrupted;
  }
  if (text == nullptr || count <= 0) return Event::end;
  line.assign(text, static_cast<std::size_t>(count));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  return Event::line;
}

LineReader::Event LineReader::read_plain(std::string& line) {
  while (true) {
    const std::size_t newline = buffered_.find('\n');
    if (newline != std::string::npos || (at_end_ && !buffered_.empty())) {
      line = buffered_.substr(0, newline);
      buffered_.erase(0, newline == std::string::npos ? newline : newline + 1);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      return Event::line;
    }
    if (at_end_) return Event::end;
    std::array<char, 4096> bytes;
    const ssize_t count = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) {
      if (!interrupted()) continue;
      clear_interrupt();
      return Event::interrupted;
    }
    if (count < 0) fail(ErrorCode::io, "cannot read standard input: {}", std::strerror(errno));
    if (count == 0) at_end_ = true;
    buffered_.append(bytes.data(), static_cast<std::size_t>(count));
  }
}

namespace {

/// Sets or clears one local flag of the terminal on stdin; true when that changed anything.
bool change_terminal(tcflag_t flag, bool on) {
  termios settings{};
  if (::tcgetattr(STDIN_FILENO, &settings) != 0) return false;
  const tcflag_t former = settings.c_lflag;
  settings.c_lflag = on ? former | flag : former & ~flag;
  return settings.c_lflag != former && ::tcsetattr(STDIN_FILENO, TCSANOW, &settings) == 0;
}

}  // namespace

QuietControlKeys::QuietControlKeys() : changed_(change_terminal(ECHOCTL, false)) {}
QuietControlKeys::~QuietControlKeys() {
  if (changed_) change_terminal(ECHOCTL, true);
}

}  // namespace quipu::app
