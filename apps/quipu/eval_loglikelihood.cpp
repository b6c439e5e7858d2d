// `quipu eval loglikelihood`: how probable texts are as the continuation of others.
//
// The definition is lm-eval's (lm_eval/api/model.py, `loglikelihood`), so that figures compare: white space
// at the end of the context belongs to the continuation; both are tokenized as one text, and the tokens
// behind those of the context alone are scored.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "engine/sampling/sampler.hpp"
#include "flags.hpp"
#include "input.hpp"
#include "interrupt.hpp"
#include "output.hpp"
#include "session.hpp"

namespace quipu::app {
namespace {

namespace json = boost::json;

struct LikelihoodFlags {
  ModelFlags model;
  EngineFlags engine;
  std::string file;
  bool json = false;
};

struct TextPair {
  std::string context, continuation;
};

struct Likelihood {
  double log_likelihood = 0;  ///< natural, of all scored tokens
  bool greedy = true;         ///< each of them is the most probable one
  std::size_t tokens = 0;     ///< scored
};

/// One line of the file. Throws `Error`.
TextPair parse_pair(std::string_view line, const std::string& file, std::size_t number) {
  json::error_code error;
  const json::value value = json::parse(line, error);
  const auto text = [&](const char* name) {
    const json::value* found = value.is_object() ? value.get_object().if_contains(name) : nullptr;
    if (error || found == nullptr || !found->is_string())
      fail(ErrorCode::bad_file, "{}: line {}: expected an object with the strings context and continuation",
           printable(file), number);
    return std::string(found->get_string());
  };
  TextPair pair{text("context"), text("continuation")};
  const std::size_t end = pair.context.find_last_not_of(" \t\n\v\f\r") + 1;
  pair.continuation.insert(0, pair.context.substr(end));
  pair.context.resize(end);
  return pair;
}

std::vector<TextPair> read_pairs(const std::string& file) {
  const std::string content = read_text_file(file);
  std::vector<TextPair> pairs;
  std::size_t number = 0;
  for (std::string_view rest = content; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") != std::string_view::npos)
      pairs.push_back(parse_pair(line, file, number));
  }
  if (pairs.empty()) fail(ErrorCode::bad_file, "{} holds no lines", printable(file));
  return pairs;
}

Likelihood score_pair(const Session& session, const TextPair& pair, const std::string& file,
                      std::size_t index) {
  const text::Tokenizer& tokenizer = session.model->tokenizer();
  const std::size_t known = tokenizer.encode(pair.context).size();
  engine::Request request;
  request.prompt = tokenizer.encode(pair.context + pair.continuation);
  if (known == 0 || request.prompt.size() <= known)
    fail(ErrorCode::invalid_argument, "{}: pair {}: {} is empty", printable(file), index + 1,
         known == 0 ? "the context" : "the continuation");
  request.sampling.temperature = 0;
  request.max_tokens = 0;
  request.want_prompt_logits = true;
  Likelihood result;
  const std::vector<std::int32_t> tokens = request.prompt;
  request.on_prompt_logits = [&](std::int64_t position, std::span<const float> logits) {
    const auto next = static_cast<std::size_t>(position) + 1;
    if (next < known || next >= tokens.size()) return;
    result.log_likelihood += static_cast<double>(engine::log_probability(logits, tokens[next]));
    const float chosen = logits[static_cast<std::size_t>(tokens[next])];
    result.greedy = result.greedy && chosen == *std::max_element(logits.begin(), logits.end());
    ++result.tokens;
  };
  generate(*session.engine, std::move(request));
  exit_if_interrupted();
  return result;
}

void loglikelihood(const LikelihoodFlags& flags) {
  const std::vector<TextPair> pairs = read_pairs(flags.file);
  const Session session = open_session(load_model(flags.model), flags.engine.options(), flags.engine.threads);
  InterruptGuard guard;
  json::array rows;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const Likelihood found = score_pair(session, pairs[i], flags.file, i);
    if (flags.json)
      rows.push_back(json::object{
          {"log_likelihood", found.log_likelihood}, {"greedy", found.greedy}, {"tokens", found.tokens}});
    else
      write_stdout(fmt::format("{:.4f} over {} tokens{}\n", found.log_likelihood, found.tokens,
                               found.greedy ? ", greedy" : ""));
  }
  if (flags.json) write_stdout(json::serialize(json::object{{"pairs", std::move(rows)}}) + "\n");
}

}  // namespace

void add_eval_loglikelihood(CLI::App& eval) {
  CLI::App& sub = add_command(eval, "loglikelihood",
                              "Log-likelihood of texts as continuations of others, as lm-eval has it");
  auto flags = std::make_shared<LikelihoodFlags>();
  flags->model.add(sub);
  text_option(sub, "-f,--file", flags->file,
              "a JSON object {\"context\", \"continuation\"} a line; - reads standard input");
  flag_option(sub, "--json", flags->json, "print one JSON object");
  group_options(sub, "Evaluation");
  flags->engine.add(sub);
  on_run(sub, [flags] {
    if (flags->file.empty()) fail(ErrorCode::invalid_argument, "no pairs: give -f FILE");
    loglikelihood(*flags);
  });
}

}  // namespace quipu::app
