// `quipu chat`: a conversation at the terminal, or one turn per line from a pipe.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "cli.hpp"
#include "commands.hpp"
#include "conversation.hpp"
#include "core/error.hpp"
#include "flags.hpp"
#include "interrupt.hpp"
#include "line_reader.hpp"
#include "output.hpp"
#include "session.hpp"

namespace quipu::app {
namespace {

struct ChatFlags {
  ModelFlags model;
  EngineFlags engine;
  SamplingFlags sampling;
  GenerationFlags generation;
  ConstraintFlags constraint;
  std::string system;
  bool verbose = false;
};

constexpr std::string_view kHelp =
    "/help        this list\n"
    "/reset       forget the conversation\n"
    "/save FILE   write the conversation to a file\n"
    "/load FILE   go on with a conversation from a file\n"
    "/exit        leave (also Ctrl-D, or Ctrl-C twice)\n"
    "Ctrl-C stops an answer. A line that ends with \\ goes on in the next one.\n";

class Chat {
 public:
  explicit Chat(const ChatFlags& flags)
      : flags_(flags),
        session_(open_session(flags.model, flags.engine)),
        sampling_(flags.sampling.resolve(session_.model->tokenizer())),
        conversation_(*session_.model, flags.system),
        reader_("> ") {
    if (const auto grammar = flags.constraint.grammar_asked_for())
      constraint_ = session_.engine->constrain(*grammar);
    if (flags.verbose || reader_.interactive()) write_stderr(describe(session_));
    if (reader_.interactive()) write_stderr("Type /help for the commands.\n");
  }

  void loop() {
    bool warned = false;
    std::string line;
    while (true) {
      const LineReader::Event event = reader_.read(line);
      if (event == LineReader::Event::interrupted) {
        if (warned || !reader_.interactive()) break;
        warned = true;
        write_stdout("\n");
        write_stderr("(Ctrl-C again or Ctrl-D leaves)\n");
        continue;
      }
      warned = false;
      if (event == LineReader::Event::end) break;
      if (line.find_first_not_of(" \t\r\n") == std::string::npos) continue;
      if (line.front() == '/') {
        if (!command(line)) return;
      } else {
        turn(std::move(line));
      }
    }
    if (reader_.interactive()) write_stdout("\n");
  }

 private:
  /// False: leave.
  bool command(const std::string& line) {
    const std::size_t space = line.find_first_of(" \t");
    const std::string name = line.substr(0, space);
    const std::size_t begin = line.find_first_not_of(" \t", name.size());
    std::string argument = begin == std::string::npos ? "" : line.substr(begin);
    while (!argument.empty() && (argument.back() == ' ' || argument.back() == '\t')) argument.pop_back();
    try {
      if (name == "/exit" || name == "/quit") return false;
      if (name == "/help") {
        write_stderr(kHelp);
      } else if (name == "/reset") {
        conversation_.reset();
        memory_.reset();
        write_stderr("(forgotten)\n");
      } else if (name == "/save" || name == "/load") {
        if (argument.empty()) fail(ErrorCode::invalid_argument, "{} needs a file name", name);
        name == "/save" ? conversation_.save(argument) : conversation_.load(argument);
        write_stderr(fmt::format("({} messages {} {})\n", conversation_.size(),
                                 name == "/save" ? "in" : "from", printable(argument)));
      } else {
        fail(ErrorCode::invalid_argument, "there is no command {}; /help lists them", printable(name));
      }
    } catch (const Error& error) {
      failed(error);
    }
    return true;
  }

  void turn(std::string message) {
    std::vector<text::Token> prompt;
    try {
      prompt = conversation_.ask(std::move(message));
      answer(std::move(prompt));
    } catch (const Error& error) {
      conversation_.withdraw();
      failed(error);
      if (error.code() == ErrorCode::context_overflow)
        write_stderr(
            "(/reset begins anew; -c makes the context longer; --context-shift forgets the oldest turns)\n");
    }
  }

  void answer(std::vector<text::Token> prompt) {
    const std::int64_t context = session_.engine->memory().context;
    while (flags_.generation.context_shift && static_cast<std::int64_t>(prompt.size()) >= context &&
           conversation_.drop_oldest()) {
      write_stderr("(the oldest turn is forgotten: the context is full)\n");
      prompt = conversation_.prompt();
    }
    engine::Request request = flags_.generation.request(sampling_);
    request.constraint = constraint_;
    request.prompt = std::move(prompt);
    std::string printed;
    request.on_token = [&](const engine::TokenEvent& event) {
      write_stdout(event.text);
      printed += event.text;
    };
    std::optional<memory::Sequence> kept;
    clear_interrupt();
    const QuietControlKeys quiet;
    const engine::Result result =
        generate(*session_.engine, std::move(request), memory_ ? &*memory_ : nullptr, &kept);
    memory_.reset();
    if (kept) memory_.emplace(std::move(*kept));
    if (result.text.size() > printed.size())
      write_stdout(std::string_view(result.text).substr(printed.size()));
    if (result.text.empty() || result.text.back() != '\n') write_stdout("\n");
    if (interrupted() && reader_.interactive()) write_stderr("(stopped)\n");
    if (interrupted() && !reader_.interactive()) exit_if_interrupted();
    clear_interrupt();
    conversation_.answer(result.text, result.tokens);
    if (result.stop == engine::StopReason::context_full)
      write_stderr(
          fmt::format("(the context of {} tokens is full: /reset, -c or --context-shift)\n", context));
  }

  void failed(const Error& error) const {
    // From a pipe nobody is there to try again.
    if (!reader_.interactive()) throw error;
    write_stderr("quipu: error: " + error.message() + "\n");
  }

  const ChatFlags& flags_;
  Session session_;
  engine::SamplingParams sampling_;
  Conversation conversation_;
  std::optional<memory::Sequence> memory_;  ///< state of the conversation so far
  std::shared_ptr<text::grammar::Constraint> constraint_;
  LineReader reader_;
};

}  // namespace

void add_chat(CLI::App& app) {
  CLI::App& command = add_command(app, "chat", "Talk with a model");
  auto flags = std::make_shared<ChatFlags>();
  flags->model.add(command);
  text_option(command, "--system", flags->system, "(-sys) system message");
  flag_option(command, "-v,--verbose", flags->verbose, "print memory plan and threads on stderr");
  group_options(command, "Conversation");
  flags->generation.add(command);
  flags->constraint.add(command);
  flags->sampling.add(command);
  flags->engine.add(command);
  on_run(command, [flags] {
    flags->sampling.validate();
    InterruptGuard guard;
    Chat(*flags).loop();
  });
}

}  // namespace quipu::app
