// `quipu bench`: tokens per second of prefill and decode, medians of repetitions after a warm-up.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/threads.hpp"
#include "flags.hpp"
#include "interrupt.hpp"
#include "output.hpp"
#include "peak.hpp"
#include "progress.hpp"
#include "session.hpp"

namespace quipu::app {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchFlags {
  ModelFlags model;
  EngineFlags engine;
  std::int64_t prompt = 512, generate = 128, depth = 0, sequences = 1, repetitions = 5;
  std::vector<std::int64_t> threads;
  std::string output = "md";
  bool peak = false;
};

struct Row {
  std::string test;
  std::int64_t threads = 0, batch = 0;
  double median = 0, min = 0, max = 0;  ///< tokens per second over all sequences
  std::optional<double> peak_fraction;
};

/// Fixed ids spread over the vocabulary: what they mean does not change the work.
std::vector<std::int32_t> some_tokens(std::int64_t count, std::size_t vocabulary) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>((static_cast<std::uint64_t>(i) * 7919 + 101) % vocabulary));
  return tokens;
}

class Bench {
 public:
  Bench(const BenchFlags& flags, Session& session) : flags_(flags), engine_(*session.engine) {
    vocabulary_ = session.model->hyperparameters().vocab;
    context_tokens_ = some_tokens(flags.depth, vocabulary_);
    if (flags.depth > 0) {
      std::optional<memory::Sequence> kept;
      app::generate(engine_, request(context_tokens_, 1), nullptr, &kept);
      depth_ = std::move(kept);
    }
  }

  /// Tokens per second of reading `prompt` tokens in each sequence.
  double prefill() {
    std::vector<std::int32_t> tokens = context_tokens_;
    const auto more = some_tokens(flags_.prompt, vocabulary_);
    tokens.insert(tokens.end(), more.begin(), more.end());
    const auto start = Clock::now();
    std::vector<engine::RequestId> ids;
    for (std::int64_t i = 0; i < flags_.sequences; ++i)
      ids.push_back(engine_.submit(request(tokens, 1), depth_ ? &*depth_ : nullptr));
    while (engine_.step()) exit_if_interrupted();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    for (const engine::RequestId id : ids) finish(id);
    return static_cast<double>(flags_.prompt * flags_.sequences) / seconds;
  }

  /// Tokens per second of generating `generate` tokens in each sequence, after the first one of each.
  double decode() {
    std::vector<std::int32_t> tokens = context_tokens_;
    tokens.push_back(some_tokens(1, vocabulary_).front());
    std::int64_t waiting = flags_.sequences, generated = 0;
    Clock::time_point start;
    std::vector<engine::RequestId> ids;
    for (std::int64_t i = 0; i < flags_.sequences; ++i) {
      engine::Request one = request(tokens, flags_.generate + 1);
      one.on_token = [&, first = true](const engine::TokenEvent&) mutable {
        if (first && --waiting == 0)
          start = Clock::now();
        else if (waiting == 0)
          ++generated;
        first = false;
      };
      ids.push_back(engine_.submit(std::move(one), depth_ ? &*depth_ : nullptr));
    }
    while (engine_.step()) exit_if_interrupted();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    for (const engine::RequestId id : ids) finish(id);
    return static_cast<double>(generated) / seconds;
  }

 private:
  engine::Request request(std::vector<std::int32_t> prompt, std::int64_t tokens) const {
    engine::Request result;
    result.prompt = std::move(prompt);
    result.sampling.temperature = 0;
    result.max_tokens = tokens;
    result.ignore_eos = true;
    return result;
  }

  void finish(engine::RequestId id) {
    const auto result = engine_.take_result(id);
    if (!result || result->stop == engine::StopReason::error)
      fail(ErrorCode::internal, "a benchmark request failed: {}", result ? result->error : "no result");
  }

  const BenchFlags& flags_;
  engine::Engine& engine_;
  std::size_t vocabulary_ = 0;
  std::vector<std::int32_t> context_tokens_;
  std::optional<memory::Sequence> depth_;
};

template <class Measure>
Row measure(std::string test, const BenchFlags& flags, std::int64_t threads, Measure&& once) {
  once();  // warm-up: page cache, CPU clock, first touch of the scratch
  std::vector<double> rates;
  for (std::int64_t i = 0; i < flags.repetitions; ++i) rates.push_back(once());
  std::sort(rates.begin(), rates.end());
  const std::size_t n = rates.size();
  Row row;
  row.test = std::move(test);
  row.threads = threads;
  row.batch = flags.sequences;
  row.median = (rates[(n - 1) / 2] + rates[n / 2]) / 2;
  row.min = rates.front();
  row.max = rates.back();
  return row;
}

/// Multiply-adds of a prompt token and bytes read for a generated one; the output matrix is not used for
/// prompt tokens, the embedding is a look-up unless it is the output matrix too.
struct Work {
  double operations_per_token = 0, bytes_per_step = 0;
  explicit Work(const models::Model& model) {
    const bool tied = model.file().find_tensor("output.weight") == nullptr;
    for (const TensorView& tensor : model.file().tensors()) {
      const bool embedding = tensor.name == "token_embd.weight";
      if (!embedding || tied) bytes_per_step += static_cast<double>(tensor.bytes());
      if (!embedding && tensor.name != "output.weight" && tensor.rows() > 1)
        operations_per_token += 2 * static_cast<double>(tensor.elements());
    }
  }
};

std::string test_name(const char* kind, std::int64_t tokens, std::int64_t depth) {
  return depth > 0 ? fmt::format("{}{}@d{}", kind, tokens, depth) : fmt::format("{}{}", kind, tokens);
}

std::vector<Row> run_all(const BenchFlags& flags) {
  const auto model = load_model(flags.model);
  const Work work(*model);
  std::vector<std::int64_t> thread_counts = flags.threads;
  if (thread_counts.empty()) thread_counts.push_back(default_threads().count);
  std::vector<Row> rows;
  for (const std::int64_t threads : thread_counts) {
    engine::EngineOptions options = flags.engine.options();
    options.sequences = flags.sequences + (flags.depth > 0 ? 1 : 0);
    if (options.context == 0) options.context = flags.depth + std::max(flags.prompt, flags.generate + 1) + 2;
    Session session = open_session(model, options, threads, flags.model);
    if (stderr_is_terminal()) write_stderr(describe(session));
    Bench bench(flags, session);
    if (flags.prompt > 0) {
      Row row = measure(test_name("pp", flags.prompt, flags.depth), flags, threads,
                        [&] { return bench.prefill(); });
      if (flags.peak)
        row.peak_fraction =
            row.median * work.operations_per_token / measure_int8_peak(static_cast<int>(threads));
      rows.push_back(row);
    }
    if (flags.generate > 0) {
      Row row = measure(test_name("tg", flags.generate, flags.depth), flags, threads,
                        [&] { return bench.decode(); });
      if (flags.peak)
        row.peak_fraction = row.median / static_cast<double>(flags.sequences) * work.bytes_per_step /
                            measure_read_bandwidth(static_cast<int>(threads));
      rows.push_back(row);
    }
  }
  return rows;
}

void print_json(const std::vector<Row>& rows) {
  namespace json = boost::json;
  json::array list;
  for (const Row& row : rows) {
    json::object object;
    object["test"] = row.test;
    object["threads"] = row.threads;
    object["batch"] = row.batch;
    object["tokens_per_second"] = {{"median", row.median}, {"min", row.min}, {"max", row.max}};
    object["peak_fraction"] = row.peak_fraction ? json::value(*row.peak_fraction) : json::value(nullptr);
    list.push_back(std::move(object));
  }
  write_stdout(json::serialize(list) + "\n");
}

void print_table(const std::vector<Row>& rows) {
  std::string text =
      "| test | threads | sequences | tokens/s (median) | min | max | of the measured peak |\n"
      "| --- | --: | --: | --: | --: | --: | --: |\n";
  for (const Row& row : rows)
    text += fmt::format("| {} | {} | {} | {:.1f} | {:.1f} | {:.1f} | {} |\n", row.test, row.threads,
                        row.batch, row.median, row.min, row.max,
                        row.peak_fraction ? fmt::format("{:.1f} %", 100 * *row.peak_fraction) : "");
  write_stdout(text);
}

std::vector<std::int64_t> parse_threads(const std::string& text) {
  std::vector<std::int64_t> counts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const auto number = parse_integer(text.substr(begin, end - begin));
    if (!number || *number < 1 || *number > 4096)
      throw std::string("expected whole numbers from 1 to 4096, separated by commas");
    counts.push_back(*number);
    begin = end + 1;
  }
  return counts;
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App& command = add_command(app, "bench", "Measure prefill and decode speed");
  auto flags = std::make_shared<BenchFlags>();
  flags->model.add(command);
  integer_option(command, "-p,--n-prompt", flags->prompt, {0, 1'000'000, "0: no prefill test"},
                 "prompt tokens");
  integer_option(command, "-n,--n-gen", flags->generate, {0, 1'000'000, "0: no decode test"},
                 "generated tokens");
  integer_option(command, "-d,--depth", flags->depth, {0, 10'000'000}, "tokens already in the context");
  integer_option(command, "-B,--sequences", flags->sequences, {1, 4096}, "sequences side by side");
  integer_option(command, "-r,--repetitions", flags->repetitions, {1, 10000},
                 "measured repetitions after a warm-up");
  choice_option(command, "-o,--output", flags->output, {"md", "json"}, "how to print");
  flag_option(command, "--peak", flags->peak,
              "measure read bandwidth and int8 peak too, and print the share reached");
  parsed_option(command, "-t,--threads", "N,…", "thread counts to measure, separated by commas",
                [raw = flags.get()](const std::string& value) { raw->threads = parse_threads(value); });
  group_options(command, "Measurement");
  flags->engine.add(command, false);
  on_run(command, [flags] {
    if (flags->prompt == 0 && flags->generate == 0)
      fail(ErrorCode::invalid_argument, "-p 0 and -n 0 leave nothing to measure");
    InterruptGuard guard;
    const std::vector<Row> rows = run_all(*flags);
    flags->output == "json" ? print_json(rows) : print_table(rows);
  });
}

}  // namespace quipu::app
