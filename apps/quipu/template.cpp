// `quipu template render`: what a model is sent for a conversation, and which of its bytes are whose.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <iterator>
#include <limits>
#include <memory>
#include <string>

#include "cli.hpp"
#include "commands.hpp"
#include "convert/convert.hpp"
#include "core/error.hpp"
#include "formats/gguf/gguf.hpp"
#include "input.hpp"
#include "json_text.hpp"
#include "output.hpp"
#include "text/conversation/chat_format.hpp"

namespace quipu::app {
namespace {

namespace json = boost::json;

struct TemplateFlags {
  std::string model, file, messages, tools, prompt = "Hello", system, arguments, thinking;
  std::string bos = "<s>", eos = "</s>";
  bool json = false, tokens = false, marked = false, continued = false;
};

text::jinja::Data read_json(const std::string& path) {
  return text::jinja::parse_json(read_text_file(path), path == "-" ? "standard input" : printable(path));
}

text::Conversation read_conversation(const TemplateFlags& flags) {
  text::Conversation conversation;
  if (flags.messages.empty()) {
    if (!flags.system.empty()) conversation.messages.push_back({"system", flags.system});
    conversation.messages.push_back({"user", flags.prompt});
  } else {
    // A list, or the body of a request.
    const text::jinja::Data data = read_json(flags.messages);
    const text::jinja::Data* list = text::find_member(data, "messages");
    conversation.messages = text::read_messages(list == nullptr ? data : *list);
    if (const auto* tools = text::find_member(data, "tools")) conversation.tools = text::read_tools(*tools);
  }
  if (!flags.tools.empty())
    conversation.tools = text::read_tools(read_json(flags.tools), printable(flags.tools));
  if (!flags.thinking.empty()) conversation.enable_thinking = flags.thinking == "on";
  if (!flags.arguments.empty())
    conversation.template_arguments =
        text::read_template_arguments(text::jinja::parse_json(flags.arguments, "--chat-template-kwargs"));
  conversation.continue_final_message = flags.continued;
  return conversation;
}

std::string_view name_of(text::OutputStart start) {
  switch (start) {
    case text::OutputStart::answer:
      return "answer";
    case text::OutputStart::reasoning:
      return "reasoning";
    case text::OutputStart::after_reasoning:
      return "after_reasoning";
    case text::OutputStart::content:
      return "content";
  }
  return "";
}

json::object capabilities_json(const text::Capabilities& can) {
  return {{"system_role", can.system_role},
          {"developer_role", can.developer_role},
          {"tools", can.tools},
          {"functions_variable", can.functions_variable},
          {"tool_calls", can.tool_calls},
          {"parallel_tool_calls", can.parallel_tool_calls},
          {"tool_role", can.tool_role},
          {"tool_call_ids", can.tool_call_ids},
          {"text_content", can.text_content},
          {"list_content", can.list_content},
          {"arguments_as_text", can.arguments_as_text},
          {"reasoning_key", can.reasoning_key},
          {"thinking_switch", can.thinking_switch},
          {"opens_reasoning", can.opens_reasoning}};
}

/// The text with `begin` and `end` around what people and tools wrote.
std::string mark_foreign(const text::Rendered& rendered, std::string_view begin, std::string_view end) {
  std::string out;
  std::size_t place = 0;
  const auto foreign = [&](std::size_t to) {
    if (to > place) out.append(begin).append(rendered.text, place, to - place).append(end);
  };
  for (const text::TextRange& range : rendered.trusted) {
    foreign(range.begin);
    out.append(rendered.text, range.begin, range.end - range.begin);
    place = range.end;
  }
  foreign(rendered.text.size());
  return out;
}

void print_json(const text::ChatFormat& format, const text::Prompt& prompt, const text::Tokenizer* tokenizer,
                const std::vector<text::Token>& tokens) {
  json::array trusted;
  for (const text::TextRange& range : prompt.rendered.trusted)
    trusted.push_back(json::array{range.begin, range.end});
  json::object object{{"text", valid_utf8(prompt.rendered.text)},
                      {"trusted", std::move(trusted)},
                      {"start", name_of(prompt.start)},
                      {"family", prompt.output->family},
                      {"capabilities", capabilities_json(format.capabilities())}};
  if (tokenizer != nullptr) {
    json::array pieces;
    for (const text::Token token : tokens) pieces.emplace_back(valid_utf8(tokenizer->piece(token, true)));
    object["tokens"] = json::array(tokens.begin(), tokens.end());
    object["pieces"] = std::move(pieces);
  }
  write_stdout(json::serialize(object) + "\n");
}

void render(const TemplateFlags& flags) {
  if (flags.model.empty() == flags.file.empty())
    fail(ErrorCode::invalid_argument, "template render takes one of -m MODEL and --template FILE");
  if (flags.tokens && flags.model.empty())
    fail(ErrorCode::invalid_argument, "--tokens needs -m MODEL: token ids are those of its vocabulary");
  const text::Conversation conversation = read_conversation(flags);
  std::unique_ptr<text::ChatTemplate> chat;
  std::unique_ptr<text::Tokenizer> tokenizer;
  if (flags.model.empty()) {
    chat = std::make_unique<text::ChatTemplate>(
        read_text_file(flags.file),
        text::ChatTemplate::SpecialTokens{{"bos_token", flags.bos}, {"eos_token", flags.eos}});
  } else {
    const gguf::File file = convert::open_model(resolve_model(flags.model));
    chat = text::ChatTemplate::from_metadata(file.metadata());
    if (chat == nullptr) fail(ErrorCode::unsupported, "{} has no chat template", printable(file.name()));
    tokenizer = text::Tokenizer::from_metadata(file.metadata());
  }
  const text::ChatFormat format(*chat);
  const text::Prompt prompt = format.prompt(conversation);
  std::vector<text::Token> tokens;
  if (tokenizer != nullptr) tokens = text::encode_rendered(*tokenizer, prompt.rendered);
  if (flags.json) {
    print_json(format, prompt, tokenizer.get(), tokens);
  } else if (flags.tokens) {
    std::string out;
    for (const text::Token token : tokens)
      fmt::format_to(std::back_inserter(out), "{}\t{}\n", token,
                     printable(tokenizer->piece(token, true), std::numeric_limits<std::uint16_t>::max()));
    write_stdout(out);
  } else if (flags.marked) {
    write_stdout(mark_foreign(prompt.rendered, "⟦", "⟧"));
  } else if (stdout_is_terminal()) {
    write_stdout(mark_foreign(prompt.rendered, "\x1b[36m", "\x1b[0m") + "\n");
  } else {
    write_stdout(prompt.rendered.text);
  }
}

}  // namespace

void add_template(CLI::App& app) {
  CLI::App& command = add_command(app, "template", "Look at a model's chat template");
  require_subcommand(command);
  CLI::App& sub = add_command(command, "render", "Print the prompt that a conversation becomes");
  auto flags = std::make_shared<TemplateFlags>();
  text_option(sub, "-m,--model", flags->model, "a GGUF file, a catalogue name or hf:org/repo[:file]");
  text_option(sub, "--template", flags->file, "a Jinja file instead of a model's template");
  text_option(sub, "--bos-token", flags->bos, "with --template: the text of bos_token");
  text_option(sub, "--eos-token", flags->eos, "with --template: the text of eos_token");
  text_option(sub, "-p,--prompt", flags->prompt, "a user's message");
  text_option(sub, "--system", flags->system, "(-sys) a system message before it");
  text_option(sub, "--messages", flags->messages,
              "a JSON file instead: messages in OpenAI's form, or a whole request; - reads standard input");
  text_option(sub, "--tools", flags->tools, "a JSON file with tools in OpenAI's form");
  choice_option(sub, "--thinking", flags->thinking, {"on", "off"}, "ask the model to think first, or not to");
  text_option(sub, "--chat-template-kwargs", flags->arguments, "further variables, a JSON object");
  flag_option(sub, "--continue", flags->continued, "the last message is the beginning of the answer");
  flag_option(sub, "--tokens", flags->tokens, "print the token ids and their pieces, one a line");
  flag_option(sub, "--mark", flags->marked,
              "put ⟦⟧ around what people and tools wrote (a terminal shows it in colour)");
  flag_option(sub, "--json", flags->json,
              "one JSON object {\"text\", \"trusted\", \"start\", \"family\", \"capabilities\", \"tokens\", "
              "\"pieces\"}");
  on_run(sub, [flags] { render(*flags); });
}

}  // namespace quipu::app
