// `quipu run`: one prompt, one answer.
#include <fmt/format.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "answer_rules.hpp"
#include "cli.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/mapped_file.hpp"
#include "flags.hpp"
#include "input.hpp"
#include "interrupt.hpp"
#include "output.hpp"
#include "session.hpp"

namespace quipu::app {
namespace {

struct RunFlags {
  ModelFlags model;
  AdapterFlags adapters;
  EngineFlags engine;
  SamplingFlags sampling;
  GenerationFlags generation;
  ConstraintFlags constraint;
  std::string prompt, prompt_file, system, prompt_cache;
  bool has_prompt = false, raw = false, json = false, verbose = false, escape = false;
};

std::string read_prompt(const RunFlags& flags) {
  if (flags.has_prompt && !flags.prompt_file.empty())
    fail(ErrorCode::invalid_argument, "-p and -f both give a prompt: give one of them");
  std::string text;
  if (!flags.prompt_file.empty())
    text = read_text_file(flags.prompt_file);
  else if (flags.has_prompt && flags.prompt != "-")
    text = flags.escape ? unescape(flags.prompt) : flags.prompt;
  else if (flags.has_prompt || !stdin_is_terminal())
    text = read_standard_input();
  else
    fail(ErrorCode::invalid_argument, "no prompt: give -p TEXT or -f FILE, pipe it in, or use `quipu chat`");
  if (text.empty()) fail(ErrorCode::invalid_argument, "the prompt is empty");
  return text;
}

/// The prompt as the model is to see it, and how its answer is to be read.
struct Question {
  std::vector<text::Token> tokens;
  std::optional<text::ChatFormat> format;  ///< none: plain text
  text::OutputStart start = text::OutputStart::answer;
  bool thinks = false;  ///< the answer may begin with thoughts
};

Question make_question(const RunFlags& flags, const models::Model& model, const std::string& prompt) {
  Question question;
  const text::ChatTemplate* chat = flags.raw ? nullptr : model.chat_template();
  if (chat == nullptr) {
    if (!flags.system.empty())
      fail(ErrorCode::invalid_argument, "--system needs a model with a chat template{}",
           flags.raw ? " and no --raw" : "");
    question.tokens = model.tokenizer().encode(prompt);
    return question;
  }
  text::Conversation conversation;
  if (!flags.system.empty()) conversation.messages.push_back({"system", flags.system});
  conversation.messages.push_back({"user", prompt});
  question.format.emplace(*chat);
  const text::Prompt made = question.format->prompt(conversation);
  question.tokens = text::encode_rendered(model.tokenizer(), made.rendered);
  question.start = made.start;
  question.thinks = text::grammar::thinking_before(question.format->capabilities(), std::nullopt,
                                                   made.start) != text::grammar::Thinking::none;
  return question;
}

void print_json(const engine::Result& result, const text::ParsedOutput* parts) {
  namespace json = boost::json;
  json::object object;
  object["text"] = parts == nullptr ? result.text : parts->content;
  if (parts != nullptr && !parts->reasoning.empty()) object["reasoning"] = parts->reasoning;
  object["tokens"] = json::array(result.tokens.begin(), result.tokens.end());
  object["stop"] = std::string(engine::to_string(result.stop));
  object["usage"] = {{"prompt_tokens", result.usage.prompt_tokens},
                     {"completion_tokens", result.usage.completion_tokens},
                     {"cached_tokens", result.usage.cached_tokens}};
  object["timings"] = {{"prompt_ms", result.usage.prompt_ms},
                       {"generation_ms", result.usage.generation_ms},
                       {"first_token_ms", result.usage.first_token_ms}};
  write_stdout(json::serialize(object) + "\n");
}

std::string speed_line(const engine::Usage& usage) {
  const auto rate = [](std::int64_t tokens, double ms) {
    return ms > 0 ? 1000.0 * static_cast<double>(tokens) / ms : 0;
  };
  const std::int64_t computed = usage.prompt_tokens - usage.cached_tokens;
  return fmt::format("prompt: {} tokens ({} cached), {:.1f} tokens/s; answer: {} tokens, {:.1f} tokens/s\n",
                     usage.prompt_tokens, usage.cached_tokens, rate(computed, usage.prompt_ms),
                     usage.completion_tokens, rate(usage.completion_tokens, usage.generation_ms));
}

void run(const RunFlags& flags) {
  flags.sampling.validate();
  const auto grammar = flags.constraint.grammar_asked_for();
  const std::string prompt = read_prompt(flags);
  Session session = open_session(flags.model, flags.engine, flags.adapters);
  const engine::SamplingParams sampling = flags.sampling.resolve(session.model->tokenizer());
  const bool talk = flags.verbose || (stderr_is_terminal() && !flags.json);
  if (talk) write_stderr(describe(session));
  if (flags.verbose) write_stderr(fmt::format("seed: {}\n", sampling.seed));

  engine::Request request = flags.generation.request(sampling);
  request.adapters = session.adapters;
  Question question = make_question(flags, *session.model, prompt);
  request.prompt = std::move(question.tokens);
  const text::Tokenizer& tokenizer = session.model->tokenizer();
  const auto held = question.format ? answer_grammar(*question.format, {}, question.start, tokenizer, grammar,
                                                     flags.constraint.reasoning_budget)
                                    : grammar;
  if (held) request.constraint = session.engine->constrain(*held);
  // Thoughts are told apart from the answer, unless all that the model writes is wanted.
  std::optional<AnswerPrinter> printer;
  if (question.thinks && !request.special) {
    request.shown = text::marker_tokens(*question.format->output(), tokenizer);
    text::OutputOptions options;
    options.start = question.start;
    printer.emplace(question.format->output(), options, !flags.json);
  }
  std::size_t printed = 0;
  request.on_token = [&](const engine::TokenEvent& event) {
    if (printer)
      printer->push(event.text);
    else if (!flags.json)
      write_stdout(event.text);
    printed += event.text.size();
  };

  memory::Sequence base = session.engine->new_sequence(session.adapters);
  const bool cached = !flags.prompt_cache.empty();
  if (cached) session.engine->check_continues();
  if (cached && std::filesystem::exists(flags.prompt_cache))
    base.restore(flags.prompt_cache, session.model->fingerprint());
  std::optional<memory::Sequence> kept;
  InterruptGuard guard;
  const engine::Result result =
      generate(*session.engine, std::move(request), cached ? &base : nullptr, cached ? &kept : nullptr);
  if (cached && kept) kept->save(flags.prompt_cache, session.model->fingerprint());

  const text::ParsedOutput* parts = printer ? &printer->finish(result.text) : nullptr;
  if (flags.json) {
    print_json(result, parts);
  } else {
    if (parts == nullptr && result.text.size() > printed)
      write_stdout(std::string_view(result.text).substr(printed));
    const std::string& said = parts == nullptr ? result.text : parts->content;
    if (said.empty() || said.back() != '\n') write_stdout("\n");
  }
  if (result.stop == engine::StopReason::context_full && !flags.json)
    write_stderr(fmt::format("quipu: the context of {} tokens is full (-c, or --context-shift to go on)\n",
                             session.engine->memory().context));
  if (flags.verbose) write_stderr(speed_line(result.usage));
  exit_if_interrupted();
}

}  // namespace

void add_run(CLI::App& app) {
  CLI::App& command = add_command(app, "run", "Answer one prompt");
  auto flags = std::make_shared<RunFlags>();
  flags->model.add(command);
  flags->adapters.add(command);
  parsed_option(command, "-p,--prompt", "TEXT",
                "the prompt, as a user's message when the model has a chat template; - reads standard input",
                [raw = flags.get()](const std::string& value) {
                  raw->prompt = value;
                  raw->has_prompt = true;
                });
  text_option(command, "-f,--file", flags->prompt_file, "read the prompt from a file");
  text_option(command, "--system", flags->system, "(-sys) system message");
  flag_option(command, "--raw,--no-chat-template", flags->raw,
              "continue the prompt as plain text, without the chat template");
  flag_option(command, "-e,--escape", flags->escape, "read \\n, \\t, \\\\ and \\\" in -p as C does");
  text_option(command, "--prompt-cache", flags->prompt_cache,
              "file that the computed state is restored from and saved to");
  flag_option(command, "--json", flags->json, "print one JSON object when done");
  flag_option(command, "-v,--verbose", flags->verbose,
              "print memory plan, threads, seed and speed on stderr");
  group_options(command, "Prompt and answer");
  flags->generation.add(command);
  flags->constraint.add(command);
  flags->sampling.add(command);
  flags->engine.add(command);
  on_run(command, [flags] { run(*flags); });
}

}  // namespace quipu::app
