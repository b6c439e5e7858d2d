// `quipu chat`: a conversation at the terminal, or one turn per line from a pipe.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "answer_rules.hpp"
#include "cli.hpp"
#include "commands.hpp"
#include "conversation.hpp"
#include "core/error.hpp"
#include "flags.hpp"
#include "input.hpp"
#include "interrupt.hpp"
#include "line_reader.hpp"
#include "output.hpp"
#include "session.hpp"

namespace quipu::app {
namespace {

struct ChatFlags {
  ModelFlags model;
  AdapterFlags adapters;
  EngineFlags engine;
  SamplingFlags sampling;
  GenerationFlags generation;
  ConstraintFlags constraint;
  std::string system, tools;
  bool verbose = false;
};

std::vector<text::Tool> read_tools_file(const std::string& path) {
  if (path.empty()) return {};
  return text::read_tools(text::jinja::parse_json(read_text_file(path), printable(path)), printable(path));
}

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
        session_(open_session(flags.model, flags.engine, flags.adapters)),
        sampling_(flags.sampling.resolve(session_.model->tokenizer())),
        conversation_(*session_.model, flags.system, read_tools_file(flags.tools)),
        marks_(text::marker_tokens(*conversation_.format().output(), session_.model->tokenizer())),
        grammar_(flags.constraint.grammar_asked_for()),
        reader_("> ") {
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
      while (answer(std::move(prompt))) prompt = conversation_.prompt();
    } catch (const Error& error) {
      conversation_.withdraw();
      failed(error);
      if (error.code() == ErrorCode::context_overflow)
        write_stderr(
            "(/reset begins anew; -c makes the context longer; --context-shift forgets the oldest turns)\n");
    }
  }

  /// What an answer that begins so must obey; null: nothing.
  std::shared_ptr<text::grammar::Constraint> constraint(text::OutputStart start) {
    const auto known = constraints_.find(start);
    if (known != constraints_.end()) return known->second;
    const auto grammar =
        answer_grammar(conversation_.format(), conversation_.tools(), start, session_.model->tokenizer(),
                       grammar_, flags_.constraint.reasoning_budget);
    return constraints_[start] = grammar ? session_.engine->constrain(*grammar) : nullptr;
  }

  /// True when the model called tools and has got their results: it is to go on.
  bool answer(std::vector<text::Token> prompt) {
    const std::int64_t context = session_.engine->memory().context;
    while (flags_.generation.context_shift && static_cast<std::int64_t>(prompt.size()) >= context &&
           conversation_.drop_oldest()) {
      write_stderr("(the oldest turn is forgotten: the context is full)\n");
      prompt = conversation_.prompt();
    }
    engine::Request request = flags_.generation.request(sampling_);
    const text::OutputOptions options = conversation_.output_options();
    request.constraint = constraint(options.start);
    request.adapters = session_.adapters;
    request.prompt = std::move(prompt);
    // Where the marks of calls and reasoning are control tokens, the parser must see those.
    request.shown = marks_;
    AnswerPrinter printer(conversation_.format().output(), options);
    request.on_token = [&](const engine::TokenEvent& event) { printer.push(event.text); };
    std::optional<memory::Sequence> kept;
    clear_interrupt();
    const QuietControlKeys quiet;
    const engine::Result result =
        generate(*session_.engine, std::move(request), memory_ ? &*memory_ : nullptr, &kept);
    memory_.reset();
    if (kept) memory_.emplace(std::move(*kept));
    const text::ParsedOutput& parts = printer.finish(result.text);
    if (parts.content.empty() || parts.content.back() != '\n') write_stdout("\n");
    if (interrupted() && reader_.interactive()) write_stderr("(stopped)\n");
    if (interrupted() && !reader_.interactive()) exit_if_interrupted();
    clear_interrupt();
    conversation_.answer(parts, result.text, result.tokens);
    if (result.stop == engine::StopReason::context_full)
      write_stderr(
          fmt::format("(the context of {} tokens is full: /reset, -c or --context-shift)\n", context));
    return !parts.tool_calls.empty() && ask_for_results(parts.tool_calls);
  }

  /// The person plays the tools. False: no results were given.
  bool ask_for_results(const std::vector<text::ToolCall>& calls) {
    for (const text::ToolCall& call : calls)
      write_stdout(fmt::format("[call] {} {}\n", printable(call.name), call.arguments));
    for (const text::ToolCall& call : calls) {
      if (reader_.interactive())
        write_stderr(fmt::format("The result of {}, in one line:\n", printable(call.name)));
      std::string line;
      if (reader_.read(line) != LineReader::Event::line) return false;
      conversation_.result(call, std::move(line));
    }
    return true;
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
  std::vector<text::Token> marks_;          ///< control tokens that are marks of calls and reasoning
  std::optional<memory::Sequence> memory_;  ///< state of the conversation so far
  std::optional<text::grammar::Grammar> grammar_;
  std::map<text::OutputStart, std::shared_ptr<text::grammar::Constraint>> constraints_;
  LineReader reader_;
};

}  // namespace

void add_chat(CLI::App& app) {
  CLI::App& command = add_command(app, "chat", "Talk with a model");
  auto flags = std::make_shared<ChatFlags>();
  flags->model.add(command);
  flags->adapters.add(command);
  text_option(command, "--system", flags->system, "(-sys) system message");
  flag_option(command, "-v,--verbose", flags->verbose, "print memory plan and threads on stderr");
  group_options(command, "Conversation");
  text_option(
      command, "--tools", flags->tools,
      "a JSON file with tools in OpenAI's form: calls are printed, and the next line is their result");
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
