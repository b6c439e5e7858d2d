// What constraints cost: time to compile a schema and time to a token's mask, for JSON schemas and texts that
// fulfil them.
//
//   grammar_bench VOCABULARY.gguf FILE.json…
//
// Each file is {"schema": …, "tests": [{"valid": bool, "data": …}]}, the form of MaskBench (guidance-ai,
// jsonschemabench); a name @LIST is a file with one name a line. Texts are laid out as Python's json.dumps
// does. Prints how many schemas are taken, how many valid texts are refused and invalid ones accepted, and
// percentiles in microseconds beside those that MaskBench publishes.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "formats/gguf/gguf.hpp"
#include "text/grammar/grammar.hpp"

namespace {

namespace json = boost::json;
namespace grammar = quipu::text::grammar;

/// Processor time of this thread: neighbours on the machine do not count.
struct Clock {
  static double now() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
  }
};
double microseconds(double begin) { return Clock::now() - begin; }

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// As json.dumps(value, ensure_ascii=False).
void dump(const json::value& value, std::string& out) {
  if (const json::array* list = value.if_array()) {
    out += '[';
    for (std::size_t i = 0; i < list->size(); ++i) {
      if (i > 0) out += ", ";
      dump((*list)[i], out);
    }
    out += ']';
  } else if (const json::object* object = value.if_object()) {
    out += '{';
    bool first = true;
    for (const auto& [key, item] : *object) {
      if (!first) out += ", ";
      first = false;
      out += json::serialize(json::value(key)) + ": ";
      dump(item, out);
    }
    out += '}';
  } else if (const double* number = value.if_double()) {
    std::string text = fmt::format("{}", *number);
    if (text.find_first_of(".en") == std::string::npos) text += ".0";
    out += text;
  } else {
    out += json::serialize(value);
  }
}

void print_row(const char* name, std::vector<double> values, const char* peers) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values.empty() ? 0
                          : values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
  };
  double sum = 0;
  for (const double v : values) sum += v;
  fmt::print("{:5} {:>9.1f} {:>8.1f} {:>8.1f} {:>8.1f} {:>8.1f} {:>9.1f} {:>9.1f} {:>9.1f}   {}\n", name,
             values.empty() ? 0 : sum / static_cast<double>(values.size()), at(0.25), at(0.5), at(0.75),
             at(0.9), at(0.99), at(0.999), at(1), peers);
}

struct Counts {
  std::size_t schemas = 0, taken = 0, valid = 0, invalid = 0, valid_refused = 0, invalid_accepted = 0;
  std::map<std::string, std::size_t> reasons;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: grammar_bench VOCABULARY.gguf FILE.json… (or @LIST)\n");
    return 1;
  }
  const auto tokenizer = quipu::text::Tokenizer::from_metadata(quipu::gguf::File::open(argv[1]).metadata());
  auto begin = Clock::now();
  const auto table = grammar::TokenTable::of(*tokenizer);
  fmt::print("{} tokens, trie made in {:.0f} ms\n", table->size(), microseconds(begin) / 1000);
  std::vector<std::string> files;
  for (int i = 2; i < argc; ++i) {
    if (argv[i][0] != '@') {
      files.emplace_back(argv[i]);
      continue;
    }
    std::ifstream list(argv[i] + 1);
    for (std::string line; std::getline(list, line);) files.push_back(line);
  }
  Counts counts;
  std::vector<double> compile, mask, accept;
  for (const std::string& file : files) {
    json::error_code error;
    const json::value root = json::parse(read(file), error, {}, {.max_depth = 500});
    if (error || !root.is_object() || !root.as_object().contains("schema")) continue;
    ++counts.schemas;
    const std::string schema = json::serialize(root.as_object().at("schema"));
    std::shared_ptr<grammar::Constraint> constraint;
    begin = Clock::now();
    try {
      constraint = std::make_shared<grammar::Constraint>(grammar::Grammar::from_json_schema(schema), table);
    } catch (const quipu::Error& e) {
      const std::string& message = e.message();
      if (std::getenv("QUIPU_BENCH_REASONS")) fmt::print(stderr, "{}: {}\n", file, message);
      continue;
    }
    compile.push_back(microseconds(begin));
    if (compile.back() > 100'000 && std::getenv("QUIPU_BENCH_SLOW"))
      fmt::print(stderr, "{}: {:.0f} us to compile\n", file, compile.back());
    ++counts.taken;
    const json::value* tests = root.as_object().if_contains("tests");
    if (tests == nullptr) continue;
    for (const json::value& test : tests->as_array()) {
      const bool valid = test.at("valid").as_bool();
      std::string text;
      dump(test.at("data"), text);
      ++(valid ? counts.valid : counts.invalid);
      grammar::Matcher matcher(constraint);
      bool good = true;
      std::size_t read = 0;
      try {
        for (const quipu::text::Token token : tokenizer->encode(text, {false, false})) {
          begin = Clock::now();
          const auto allowed = matcher.allowed();
          mask.push_back(microseconds(begin));
          if (mask.back() > 1000 && std::getenv("QUIPU_BENCH_SLOW"))
            fmt::print(stderr, "{}: {:.0f} us after {}\n", file, mask.back(),
                       text.substr(read - std::min<std::size_t>(read, 80), std::min<std::size_t>(read, 80)));
          begin = Clock::now();
          good = matcher.accept(token);
          accept.push_back(microseconds(begin));
          if (grammar::has_bit(*allowed, static_cast<std::size_t>(token)) != good)
            fmt::print(stderr, "{}: mask and automaton differ at token {}\n", file, token);
          if (!good) break;
          read += table->entry(token).text.size();
        }
      } catch (const quipu::Error& e) {
        fmt::print(stderr, "{}: {}\n", file, e.message());
        good = false;
      }
      good = good && matcher.is_accepting();
      if (good == valid) continue;
      ++(valid ? counts.valid_refused : counts.invalid_accepted);
      if (std::getenv("QUIPU_BENCH_REASONS"))
        fmt::print(stderr, "{}: {}: {}⟨here⟩{}\n", file, valid ? "VALID REFUSED" : "INVALID ACCEPTED",
                   text.substr(read - std::min<std::size_t>(read, 200), std::min<std::size_t>(read, 200)),
                   text.substr(std::min(read, text.size()), 100));
    }
  }
  fmt::print(
      "schemas {}, taken {} ({:.1f} %); valid texts {}, of them refused {}; invalid texts {}, of them "
      "accepted {}\n",
      counts.schemas, counts.taken,
      100.0 * static_cast<double>(counts.taken) /
          static_cast<double>(std::max<std::size_t>(counts.schemas, 1)),
      counts.valid, counts.valid_refused, counts.invalid, counts.invalid_accepted);
  fmt::print(
      "us      average      p25      p50      p75      p90       p99     p99.9      most   published p50 / "
      "p99 / "
      "p99.9\n");
  print_row("TTFM", compile, "llguidance 1037 / 17988 / 40092, XGrammar 919459 / 900 s / 900 s");
  print_row("TBM", mask, "llguidance 46 / 533 / 1695, XGrammar 9 / 5687 / 100267");
  print_row("step", accept, "");
  return 0;
}
