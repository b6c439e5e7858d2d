// `quipu eval perplexity`: how well a model predicts a text.
//
// The definition is llama.cpp's, so that figures compare: the text's tokens are cut into windows of the
// context without overlap; in a model that adds BOS the first token of each window is replaced by it; each
// window is computed on its own, and the tokens of its second half are scored.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "cli.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "engine/sampling/sampler.hpp"
#include "flags.hpp"
#include "input.hpp"
#include "interrupt.hpp"
#include "output.hpp"
#include "progress.hpp"
#include "session.hpp"

namespace quipu::app {
namespace {

struct EvalFlags {
  ModelFlags model;
  EngineFlags engine;
  std::string file;
  std::int64_t chunks = -1;
  bool json = false;
};

/// Mean and spread of negative log-likelihoods.
struct Score {
  double sum = 0, sum_of_squares = 0;
  std::int64_t count = 0;

  void add(double nll) {
    sum += nll;
    sum_of_squares += nll * nll;
    ++count;
  }
  double perplexity() const { return std::exp(sum / static_cast<double>(count)); }
  /// Standard error of the perplexity, by the first-order rule: perplexity times the standard error of the
  /// mean.
  double standard_error() const {
    const double n = static_cast<double>(count), mean = sum / n;
    const double variance = sum_of_squares / n - mean * mean;
    return count > 1 && variance > 0 ? perplexity() * std::sqrt(variance / (n - 1)) : 0;
  }
};

void score_window(engine::Engine& engine, const std::vector<std::int32_t>& window, Score& score) {
  engine::Request request;
  request.prompt = window;
  request.sampling.temperature = 0;
  request.max_tokens = 0;
  request.want_prompt_logits = true;
  const auto size = static_cast<std::int64_t>(window.size());
  request.on_prompt_logits = [&](std::int64_t position, std::span<const float> logits) {
    if (position < size / 2 || position + 1 >= size) return;
    score.add(-static_cast<double>(
        engine::log_probability(logits, window[static_cast<std::size_t>(position) + 1])));
  };
  generate(engine, std::move(request));
  exit_if_interrupted();
}

void perplexity(const EvalFlags& flags) {
  const std::string text = read_text_file(flags.file);
  engine::EngineOptions options = flags.engine.options();
  if (options.context == 0) options.context = 512;
  if (options.context < 4)
    fail(ErrorCode::invalid_argument, "-c {}: a window needs at least 4 tokens", options.context);
  const Session session = open_session(load_model(flags.model), options, flags.engine.threads);
  const text::Tokenizer& tokenizer = session.model->tokenizer();
  const std::vector<text::Token> tokens = tokenizer.encode(text);
  const auto width = static_cast<std::size_t>(options.context);
  std::size_t windows = tokens.size() / width;
  if (windows == 0)
    fail(ErrorCode::invalid_argument, "{} has {} tokens, fewer than one window of {} (-c)",
         printable(flags.file), tokens.size(), width);
  if (flags.chunks >= 0) windows = std::min(windows, static_cast<std::size_t>(flags.chunks));

  InterruptGuard guard;
  Score score;
  const bool talk = stderr_is_terminal();
  for (std::size_t i = 0; i < windows; ++i) {
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(i * width);
    std::vector<std::int32_t> window(begin, begin + static_cast<std::ptrdiff_t>(width));
    if (tokenizer.add_bos && tokenizer.bos) window.front() = *tokenizer.bos;
    score_window(*session.engine, window, score);
    if (talk)
      write_stderr(fmt::format("\r\033[Kwindow {} of {}: {:.4f}", i + 1, windows, score.perplexity()));
  }
  if (talk) write_stderr("\r\033[K");
  if (!std::isfinite(score.perplexity()))
    fail(ErrorCode::bad_file, "the model gives no finite perplexity: its logits are not numbers");
  if (flags.json)
    write_stdout(boost::json::serialize(boost::json::object{{"perplexity", score.perplexity()},
                                                            {"stderr", score.standard_error()},
                                                            {"tokens", score.count}}) +
                 "\n");
  else
    write_stdout(fmt::format("perplexity {:.4f} +/- {:.4f} over {} tokens ({} windows of {})\n",
                             score.perplexity(), score.standard_error(), score.count, windows, width));
}

}  // namespace

void add_eval(CLI::App& app) {
  CLI::App& command = add_command(app, "eval", "Measure a model");
  require_subcommand(command);
  CLI::App& sub = add_command(command, "perplexity",
                              "Perplexity of a text: windows of the context, the second half of each scored");
  auto flags = std::make_shared<EvalFlags>();
  flags->model.add(sub);
  text_option(sub, "-f,--file", flags->file, "the text; - reads standard input");
  integer_option(sub, "--chunks", flags->chunks, {-1, INT64_MAX, "-1: all"}, "most windows to score");
  flag_option(sub, "--json", flags->json, "print one JSON object");
  group_options(sub, "Evaluation");
  flags->engine.add(sub);
  on_run(sub, [flags] {
    if (flags->file.empty()) fail(ErrorCode::invalid_argument, "no text: give -f FILE");
    if (flags->chunks == 0) fail(ErrorCode::invalid_argument, "--chunks 0 scores nothing");
    perplexity(*flags);
  });
  add_eval_loglikelihood(command);
}

}  // namespace quipu::app
