// `quipu tokenize`: text to token ids with a model's vocabulary, and back. No weights are read.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cli.hpp"
#include "commands.hpp"
#include "convert/convert.hpp"
#include "core/error.hpp"
#include "formats/gguf/gguf.hpp"
#include "input.hpp"
#include "json_text.hpp"
#include "output.hpp"
#include "text/tokenizer.hpp"

namespace quipu::app {
namespace {

struct TokenizeFlags {
  std::string model, text, file;
  std::vector<std::string> decode;
  bool json = false, no_special = false, no_parse_special = false;
  CLI::Option* text_option = nullptr;
};

std::unique_ptr<text::Tokenizer> open_tokenizer(const TokenizeFlags& flags) {
  if (flags.model.empty())
    fail(ErrorCode::invalid_argument,
         "-m names no model: give a GGUF file, a catalogue name or hf:org/repo[:file]");
  const gguf::File file = convert::open_model(resolve_model(flags.model));
  return text::Tokenizer::from_metadata(file.metadata());
}

void encode(const TokenizeFlags& flags) {
  const auto tokenizer = open_tokenizer(flags);
  const std::string text = flags.file.empty() ? flags.text : read_text_file(flags.file);
  const std::vector<text::Token> tokens =
      tokenizer->encode(text, {.add_special = !flags.no_special, .parse_special = !flags.no_parse_special});
  if (flags.json) {
    boost::json::array ids, pieces;
    ids.reserve(tokens.size());
    pieces.reserve(tokens.size());
    for (const text::Token token : tokens) {
      ids.emplace_back(token);
      pieces.emplace_back(valid_utf8(tokenizer->piece(token, true)));
    }
    boost::json::object result;
    result["tokens"] = std::move(ids);
    result["pieces"] = std::move(pieces);
    write_stdout(boost::json::serialize(result) + "\n");
    return;
  }
  std::string out;
  for (const text::Token token : tokens)
    fmt::format_to(std::back_inserter(out), "{}\t{}\n", token,
                   printable(tokenizer->piece(token, true), std::numeric_limits<std::uint16_t>::max()));
  write_stdout(out);
}

void decode(const TokenizeFlags& flags) {
  std::vector<text::Token> tokens;
  for (const std::string& word : flags.decode) {
    const std::optional<std::int64_t> id = parse_integer(word);
    if (!id || *id < 0 || *id > std::numeric_limits<text::Token>::max())
      fail(ErrorCode::invalid_argument, "--decode: \"{}\" is not a token id, expected an integer from 0",
           printable(word));
    tokens.push_back(static_cast<text::Token>(*id));
  }
  const auto tokenizer = open_tokenizer(flags);
  const std::string text = tokenizer->decode(tokens, !flags.no_special);
  if (flags.json)
    write_stdout(boost::json::serialize(boost::json::object{{"text", valid_utf8(text)}}) + "\n");
  else
    write_stdout(text + "\n");
}

}  // namespace

void add_tokenize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenize", "Turn text into token ids, or ids back into text");
  auto flags = std::make_shared<TokenizeFlags>();
  text_option(*command, "-m,--model", flags->model, "a GGUF file, a catalogue name or hf:org/repo[:file]");
  flags->text_option = command->add_option("text", flags->text, "the text");
  text_option(*command, "-f,--file", flags->file, "read the text from a file, - means standard input");
  command->add_option("--decode", flags->decode, "turn these ids into text")
      ->expected(1, std::numeric_limits<int>::max());
  flag_option(*command, "--json", flags->json,
              "one JSON object {\"tokens\", \"pieces\"}, or {\"text\"} with --decode");
  flag_option(*command, "--no-special", flags->no_special,
              "leave BOS and EOS out; with --decode all control tokens");
  flag_option(*command, "--no-parse-special", flags->no_parse_special,
              "read special tokens in the text as plain text");
  command->callback([flags] {
    const int sources = (flags->text_option->count() > 0 ? 1 : 0) + (flags->file.empty() ? 0 : 1) +
                        (flags->decode.empty() ? 0 : 1);
    if (sources != 1)
      fail(ErrorCode::invalid_argument, "tokenize takes one of TEXT, -f FILE and --decode ID..., found {}",
           sources);
    if (flags->decode.empty())
      encode(*flags);
    else
      decode(*flags);
  });
}

}  // namespace quipu::app
