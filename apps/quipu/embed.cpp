// `quipu embed`: texts to vectors. `quipu rerank`: documents in the order in which they answer a query.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "cli.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "engine/embedder.hpp"
#include "flags.hpp"
#include "input.hpp"
#include "json_text.hpp"
#include "output.hpp"
#include "session.hpp"

namespace quipu::app {
namespace {

namespace json = boost::json;
using models::Pooling;

struct VectorFlags {
  ModelFlags model;
  std::int64_t context = 0, batch = 512, threads = 0;
  std::string file, pooling, query;
  std::vector<std::string> words;
  bool json = false, normalize = false, no_normalize = false;

  void add(CLI::App& app) {
    model.add(app);
    integer_option(app, "-c,--ctx-size", context, {.min = 0},
                   "most tokens of a text (0: what the model was trained for, at most 8192)");
    integer_option(app, "-b,--batch-size", batch, {.min = 1},
                   "tokens computed in one step, when texts share it");
    integer_option(app, "-t,--threads", threads, {.min = 0, .max = 1024}, "threads (0: physical cores)");
    flag_option(app, "--json", json, "one object on standard output");
  }
};

/// One text a line; empty lines are texts as well.
std::vector<std::string> lines_of(const std::string& path) {
  const std::string text = read_text_file(path);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    at = end + 1;
  }
  return lines;
}

engine::Embedder open(const VectorFlags& flags, std::optional<Pooling> pooling) {
  if (flags.model.model.empty())
    fail(ErrorCode::invalid_argument,
         "-m names no model: give a GGUF file, a catalogue name or hf:org/repo[:file]");
  auto model = load_model(flags.model);
  engine::EngineOptions backends;
  add_cpu_backend(backends, flags.threads);
  engine::EmbedderOptions options;
  options.pooling = pooling;
  options.context = flags.context;
  options.batch = flags.batch;
  options.backends = std::move(backends.backends);
  return {std::move(model), std::move(options)};
}

std::size_t count_tokens(const std::vector<engine::Passage>& passages) {
  return std::accumulate(passages.begin(), passages.end(), std::size_t{0},
                         [](std::size_t sum, const engine::Passage& p) { return sum + p.tokens.size(); });
}

json::object usage_of(const std::vector<engine::Passage>& passages) {
  return {{"prompt_tokens", count_tokens(passages)}};
}

json::array numbers(std::span<const float> row) {
  json::array list;
  for (const float value : row) list.emplace_back(value);
  return list;
}

void embed(const VectorFlags& flags) {
  if (flags.normalize && flags.no_normalize)
    fail(ErrorCode::invalid_argument, "--normalize and --no-normalize were both given");
  std::vector<std::string> texts = flags.words;
  if (!flags.file.empty()) {
    const std::vector<std::string> lines = lines_of(flags.file);
    texts.insert(texts.end(), lines.begin(), lines.end());
  }
  if (texts.empty()) fail(ErrorCode::invalid_argument, "there is no text: give TEXT... or -f FILE");
  const auto pooling = flags.pooling.empty() ? std::nullopt : models::find_pooling(flags.pooling);
  engine::Embedder embedder = open(flags, pooling);
  std::vector<engine::Passage> passages;
  for (const std::string& text : texts) passages.push_back(engine::make_passage(embedder.model(), text));
  std::vector<std::vector<float>> vectors = embedder.embed(passages);
  const auto width = static_cast<std::size_t>(embedder.width());
  const bool scales = !flags.no_normalize && embedder.pooling() != Pooling::rank;

  json::array list;
  std::string out;
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    json::array rows;
    for (std::size_t at = 0; at < vectors[i].size(); at += width) {
      const std::span<float> row = std::span(vectors[i]).subspan(at, width);
      if (scales) engine::normalize(row);
      if (flags.json)
        rows.emplace_back(numbers(row));
      else
        fmt::format_to(std::back_inserter(out), "{}\n", fmt::join(row, " "));
    }
    if (!flags.json) continue;
    json::object item{{"index", i}, {"tokens", passages[i].tokens.size()}};
    item["embedding"] = embedder.pooling() == Pooling::none ? json::value(std::move(rows)) : rows.at(0);
    list.push_back(std::move(item));
  }
  if (!flags.json) return write_stdout(out);
  json::object result;
  result["model"] = valid_utf8(embedder.model().description());
  result["pooling"] = to_string(embedder.pooling());
  result["dimensions"] = width;
  result["data"] = std::move(list);
  result["usage"] = usage_of(passages);
  write_stdout(json::serialize(result) + "\n");
}

void rerank(const VectorFlags& flags) {
  std::vector<std::string> documents = flags.words;
  if (!flags.file.empty()) {
    const std::vector<std::string> lines = lines_of(flags.file);
    documents.insert(documents.end(), lines.begin(), lines.end());
  }
  if (documents.empty()) fail(ErrorCode::invalid_argument, "there is no document: give DOC... or -f FILE");
  engine::Embedder embedder = open(flags, Pooling::rank);
  std::vector<engine::Passage> pairs;
  for (const std::string& document : documents)
    pairs.push_back(engine::make_pair(embedder.model(), flags.query, document));
  const std::vector<std::vector<float>> scores = embedder.embed(pairs);
  std::vector<std::size_t> order(documents.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a].front() > scores[b].front(); });
  json::array list;
  std::string out;
  for (const std::size_t i : order) {
    list.push_back(json::object{
        {"index", i}, {"relevance_score", scores[i].front()}, {"document", valid_utf8(documents[i])}});
    fmt::format_to(std::back_inserter(out), "{}\t{}\t{}\n", i, scores[i].front(), documents[i]);
  }
  if (!flags.json) return write_stdout(out);
  json::object result;
  result["model"] = valid_utf8(embedder.model().description());
  result["results"] = std::move(list);
  result["usage"] = usage_of(pairs);
  write_stdout(json::serialize(result) + "\n");
}

}  // namespace

void add_embed(CLI::App& app) {
  auto flags = std::make_shared<VectorFlags>();
  CLI::App& command = add_command(app, "embed", "texts to vectors");
  flags->add(command);
  text_option(command, "-f,--file", flags->file, "further texts, one a line; -: standard input");
  choice_option(
      command, "--pooling", flags->pooling, {"none", "mean", "cls", "last", "rank"},
      "how a text's rows become one vector (none: a vector for each token; default: the model's own)");
  flag_option(command, "--normalize", flags->normalize, "vectors of Euclidean length 1 (the default)");
  flag_option(command, "--no-normalize", flags->no_normalize, "vectors as the model gives them");
  arguments(command, "text", flags->words, "texts");
  on_run(command, [flags] { embed(*flags); });
}

void add_rerank(CLI::App& app) {
  auto flags = std::make_shared<VectorFlags>();
  CLI::App& command = add_command(app, "rerank", "documents by how well they answer a query");
  flags->add(command);
  text_option(command, "-f,--file", flags->file, "further documents, one a line; -: standard input");
  argument(command, "query", flags->query, "what is asked");
  arguments(command, "document", flags->words, "documents");
  on_run(command, [flags] { rerank(*flags); });
}

}  // namespace quipu::app
