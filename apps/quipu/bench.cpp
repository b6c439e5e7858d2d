// `quipu bench`: tokens per second of prefill and decode, medians of repetitions after a warm-up.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli.hpp"
#include "commands.hpp"
#include "core/cpu_features.hpp"
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
  std::int64_t repetitions = 5;
  std::vector<std::int64_t> prompts{512}, generates{128}, depths{0}, sequences{1}, threads;
  std::string output = "md";
  bool peak = false;
};

struct Row {
  std::string test;
  std::int64_t threads = 0, batch = 0;
  double median = 0, min = 0, max = 0;  ///< tokens per second over all sequences
  /// The machine's own rate, in bytes or operations per second, and the part of it that was reached.
  struct Peak {
    double rate = 0, fraction = 0;
    const char* of = "";  ///< "read bandwidth", "int8", "float" or "bf16"
  };
  std::optional<Peak> peak;
};

/// Fixed ids spread over the vocabulary: what they mean does not change the work.
std::vector<std::int32_t> some_tokens(std::int64_t count, std::size_t vocabulary) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>((static_cast<std::uint64_t>(i) * 7919 + 101) % vocabulary));
  return tokens;
}

/// Measures in one session: a depth and a number of sequences.
class Bench {
 public:
  Bench(std::int64_t depth, std::int64_t sequences, Session& session)
      : sequences_(sequences), engine_(*session.engine) {
    vocabulary_ = session.model->hyperparameters().vocab;
    context_tokens_ = some_tokens(depth, vocabulary_);
    if (depth > 0) {
      engine_.check_continues();
      std::optional<memory::Sequence> kept;
      app::generate(engine_, request(context_tokens_, 1), nullptr, &kept);
      depth_ = std::move(kept);
    }
  }

  /// Tokens per second of reading `prompt` tokens in each sequence.
  double prefill(std::int64_t prompt) {
    std::vector<std::int32_t> tokens = context_tokens_;
    const auto more = some_tokens(prompt, vocabulary_);
    tokens.insert(tokens.end(), more.begin(), more.end());
    const auto start = Clock::now();
    std::vector<engine::RequestId> ids;
    for (std::int64_t i = 0; i < sequences_; ++i) ids.push_back(submit(request(tokens, 1)));
    while (engine_.step()) exit_if_interrupted();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    for (const engine::RequestId id : ids) finish(id);
    return static_cast<double>(prompt * sequences_) / seconds;
  }

  /// Tokens per second of generating `generate` tokens in each sequence, after the first one of each.
  double decode(std::int64_t generate) {
    std::vector<std::int32_t> tokens = context_tokens_;
    tokens.push_back(some_tokens(1, vocabulary_).front());
    std::int64_t waiting = sequences_, generated = 0;
    Clock::time_point start;
    std::vector<engine::RequestId> ids;
    for (std::int64_t i = 0; i < sequences_; ++i) {
      engine::Request one = request(tokens, generate + 1);
      one.on_token = [&, first = true](const engine::TokenEvent&) mutable {
        if (first && --waiting == 0)
          start = Clock::now();
        else if (waiting == 0)
          ++generated;
        first = false;
      };
      ids.push_back(submit(std::move(one)));
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

  /// Continues a copy of the context: submitting takes what it continues.
  engine::RequestId submit(engine::Request request) {
    if (!depth_) return engine_.submit(std::move(request));
    memory::Sequence base = depth_->fork();
    return engine_.submit(std::move(request), &base);
  }

  void finish(engine::RequestId id) {
    const auto result = engine_.take_result(id);
    if (!result || result->stop == engine::StopReason::error)
      fail(ErrorCode::internal, "a benchmark request failed: {}", result ? result->error : "no result");
  }

  std::int64_t sequences_;
  engine::Engine& engine_;
  std::size_t vocabulary_ = 0;
  std::vector<std::int32_t> context_tokens_;
  std::optional<memory::Sequence> depth_;
};

template <class Measure>
Row measure(std::string test, std::int64_t repetitions, Measure&& once) {
  once();  // warm-up: page cache, CPU clock, first touch of the scratch
  std::vector<double> rates;
  for (std::int64_t i = 0; i < repetitions; ++i) rates.push_back(once());
  std::sort(rates.begin(), rates.end());
  const std::size_t n = rates.size();
  Row row;
  row.test = std::move(test);
  row.median = (rates[(n - 1) / 2] + rates[n / 2]) / 2;
  row.min = rates.front();
  row.max = rates.back();
  return row;
}

/// Operations of a prompt token and bytes of weights read for a generated one; the output matrix is not used
/// for prompt tokens, the embedding is a look-up unless it is the output matrix too.
struct Work {
  double operations_per_token = 0, weight_bytes = 0;
  double expert_bytes = 0;  ///< of all experts; those of a mixture are not in weight_bytes
  double used_share = 1;    ///< of the experts, by one token
  double float_operations = 0, bf16_operations = 0;  ///< of them, with weights that are not quantised
  explicit Work(const models::Model& model) {
    const bool tied = model.file().find_tensor("output.weight") == nullptr;
    const auto& experts = model.hyperparameters().experts;
    used_share = experts.count > 0 ? static_cast<double>(experts.used) / experts.count : 1;
    for (const TensorView& tensor : model.file().tensors()) {
      const bool embedding = tensor.name == "token_embd.weight";
      const bool of_experts = experts.count > 1 && tensor.shape[2] == experts.count;
      if (!embedding || tied)
        (of_experts ? expert_bytes : weight_bytes) += static_cast<double>(tensor.bytes());
      if (embedding || tensor.name == "output.weight" || tensor.rows() <= 1) continue;
      const double operations = 2 * static_cast<double>(tensor.elements()) * (of_experts ? used_share : 1);
      operations_per_token += operations;
      if (info(tensor.dtype).block_size == 1) float_operations += operations;
      if (tensor.dtype == DType::bf16) bf16_operations += operations;
    }
  }
  /// Bytes of weights that a step of so many tokens reads: of experts what as many independent choices meet.
  double bytes_of_step(std::int64_t tokens) const {
    return weight_bytes + expert_bytes * (1 - std::pow(1 - used_share, static_cast<double>(tokens)));
  }
  /// The peak that prompts are measured by: that of the arithmetic which most of the weights take.
  Row::Peak prefill_peak(int threads, double tokens_per_second) const {
    const bool floats = float_operations > operations_per_token / 2;
    const bool bf16 = bf16_operations > operations_per_token / 2 && detect_isa() == Isa::amx;
    const double rate = floats ? measure_float_peak(threads, bf16) : measure_int8_peak(threads);
    return {rate, tokens_per_second * operations_per_token / rate, bf16 ? "bf16" : floats ? "float" : "int8"};
  }
};

std::string test_name(const char* kind, std::int64_t tokens, std::int64_t depth) {
  return depth > 0 ? fmt::format("{}{}@d{}", kind, tokens, depth) : fmt::format("{}{}", kind, tokens);
}

class Bencher {
 public:
  explicit Bencher(const BenchFlags& flags)
      : flags_(flags), model_(load_model(flags.model)), work_(*model_) {}

  std::vector<Row> run_all() {
    std::vector<std::int64_t> thread_counts = flags_.threads;
    if (thread_counts.empty()) thread_counts.push_back(default_threads().count);
    for (const std::int64_t threads : thread_counts)
      for (const std::int64_t depth : flags_.depths)
        for (const std::int64_t sequences : flags_.sequences) run(threads, depth, sequences);
    return std::move(rows_);
  }

 private:
  void run(std::int64_t threads, std::int64_t depth, std::int64_t sequences) {
    const auto most = [](const std::vector<std::int64_t>& list) { return *std::ranges::max_element(list); };
    engine::EngineOptions options = flags_.engine.options();
    options.sequences = sequences + (depth > 0 ? 1 : 0);
    if (options.context == 0)
      options.context = depth + std::max(most(flags_.prompts), most(flags_.generates) + 1) + 2;
    Session session = open_session(model_, options, threads);
    if (stderr_is_terminal()) write_stderr(describe(session));
    Bench bench(depth, sequences, session);
    const auto add = [&](Row row) {
      row.threads = threads;
      row.batch = sequences;
      rows_.push_back(std::move(row));
    };
    for (const std::int64_t prompt : flags_.prompts) {
      if (prompt == 0) continue;
      Row row =
          measure(test_name("pp", prompt, depth), flags_.repetitions, [&] { return bench.prefill(prompt); });
      if (flags_.peak) row.peak = work_.prefill_peak(static_cast<int>(threads), row.median);
      add(std::move(row));
    }
    for (const std::int64_t generate : flags_.generates) {
      if (generate == 0) continue;
      Row row = measure(test_name("tg", generate, depth), flags_.repetitions,
                        [&] { return bench.decode(generate); });
      if (flags_.peak) {
        const engine::MemoryReport& memory = session.engine->memory();
        const double cache =
            static_cast<double>(memory.kv) / static_cast<double>(memory.context * options.sequences);
        const double positions = static_cast<double>(sequences * (depth + generate / 2));
        const double rate = measure_read_bandwidth(static_cast<int>(threads));
        const double bytes = work_.bytes_of_step(sequences) + cache * positions;
        row.peak = {rate, row.median / static_cast<double>(sequences) * bytes / rate, "read bandwidth"};
      }
      add(std::move(row));
    }
  }

  const BenchFlags& flags_;
  std::shared_ptr<const models::Model> model_;
  Work work_;
  std::vector<Row> rows_;
};

void print_json(const std::vector<Row>& rows) {
  namespace json = boost::json;
  json::array list;
  for (const Row& row : rows) {
    json::object object;
    object["test"] = row.test;
    object["threads"] = row.threads;
    object["batch"] = row.batch;
    object["tokens_per_second"] = {{"median", row.median}, {"min", row.min}, {"max", row.max}};
    object["peak_fraction"] = row.peak ? json::value(row.peak->fraction) : json::value(nullptr);
    object["peak"] = row.peak ? json::value({{"of", row.peak->of}, {"per_second", row.peak->rate}}) : nullptr;
    list.push_back(std::move(object));
  }
  write_stdout(json::serialize(list) + "\n");
}

const char* bytes_or_operations(const Row::Peak& peak) {
  return std::string_view(peak.of) == "read bandwidth" ? "GB/s" : "GOPS";
}

void print_table(const std::vector<Row>& rows) {
  std::string text =
      "| test | threads | sequences | tokens/s (median) | min | max | of the measured peak |\n"
      "| --- | --: | --: | --: | --: | --: | --: |\n";
  for (const Row& row : rows)
    text += fmt::format("| {} | {} | {} | {:.1f} | {:.1f} | {:.1f} | {} |\n", row.test, row.threads,
                        row.batch, row.median, row.min, row.max,
                        row.peak
                            ? fmt::format("{:.1f} % of {:.1f} {} ({})", 100 * row.peak->fraction,
                                          row.peak->rate * 1e-9, bytes_or_operations(*row.peak), row.peak->of)
                            : "");
  write_stdout(text);
}

std::vector<std::int64_t> parse_list(const std::string& text, std::int64_t least, std::int64_t most) {
  std::vector<std::int64_t> numbers;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const auto number = parse_integer(text.substr(begin, end - begin));
    if (!number || *number < least || *number > most)
      throw fmt::format("expected whole numbers from {} to {}, separated by commas", least, most);
    numbers.push_back(*number);
    begin = end + 1;
  }
  return numbers;
}

bool asks_for_something(const std::vector<std::int64_t>& list) {
  return std::ranges::any_of(list, [](std::int64_t n) { return n > 0; });
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App& command = add_command(app, "bench", "Measure prefill and decode speed");
  auto flags = std::make_shared<BenchFlags>();
  flags->model.add(command);
  const auto list = [&](const char* names, std::vector<std::int64_t>& values, std::int64_t least,
                        std::int64_t most, const char* help) {
    parsed_option(command, names, "N,…", help, [&values, least, most](const std::string& value) {
      values = parse_list(value, least, most);
    });
  };
  list("-p,--n-prompt", flags->prompts, 0, 1'000'000, "prompt tokens [512; 0: no prefill test]");
  list("-n,--n-gen", flags->generates, 0, 1'000'000, "generated tokens [128; 0: no decode test]");
  list("-d,--depth", flags->depths, 0, 10'000'000, "tokens already in the context [0]");
  list("-B,--sequences", flags->sequences, 1, 4096, "sequences side by side [1]");
  list("-t,--threads", flags->threads, 1, 4096, "threads [as many as the machine and its limits give]");
  integer_option(command, "-r,--repetitions", flags->repetitions, {1, 10000},
                 "measured repetitions after a warm-up");
  choice_option(command, "-o,--output", flags->output, {"md", "json"}, "how to print");
  flag_option(command, "--peak", flags->peak,
              "measure the machine's read bandwidth and arithmetic peak too, and print the share reached");
  group_options(command, "Measurement");
  flags->engine.add(command, false);
  on_run(command, [flags] {
    if (!asks_for_something(flags->prompts) && !asks_for_something(flags->generates))
      fail(ErrorCode::invalid_argument, "-p 0 and -n 0 leave nothing to measure");
    InterruptGuard guard;
    const std::vector<Row> rows = Bencher(*flags).run_all();
    flags->output == "json" ? print_json(rows) : print_table(rows);
  });
}

}  // namespace quipu::app
