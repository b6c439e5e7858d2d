#include "engine/embedder.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.hpp"
#include "core/log.hpp"
#include "engine/machine_memory.hpp"
#include "engine/memory_planner.hpp"
#include "graph/memory_plan.hpp"

namespace quipu::engine {

using models::Pooling;

namespace {

/// Texts of one step: each has a page of its own in the cache at least.
constexpr std::int64_t kMostTexts = 64;

/// A template with {query} and {document}, and where its own words stand in the result.
Passage fill_template(const models::Model& model, const std::string& pattern, std::string_view query,
                      std::string_view document) {
  std::string text;
  std::vector<text::TextRange> own;
  for (std::size_t at = 0; at < pattern.size();) {
    std::size_t next = pattern.size(), size = 0;
    std::string_view value;
    for (const auto& [name, filled] : {std::pair<std::string_view, std::string_view>{"{query}", query},
                                       std::pair<std::string_view, std::string_view>{"{document}", document}})
      if (const std::size_t found = pattern.find(name, at); found < next) {
        next = found;
        size = name.size();
        value = filled;
      }
    if (next > at) own.push_back({text.size(), text.size() + next - at});
    text += pattern.substr(at, next - at);
    text += value;
    at = next + size;
  }
  return {
      model.tokenizer().encode(text, {.add_special = false, .parse_special = true, .special_within = own})};
}

}  // namespace

Passage make_passage(const models::Model& model, std::string_view text) {
  return {model.tokenizer().encode(text)};
}

Passage make_pair(const models::Model& model, std::string_view query, std::string_view document) {
  const gguf::Metadata& metadata = model.file().metadata();
  if (const auto pattern = metadata.try_string("tokenizer.chat_template.rerank"))
    return fill_template(model, *pattern, query, document);
  const text::Tokenizer& tokenizer = model.tokenizer();
  Passage pair = make_passage(model, query);
  const bool separates =
      tokenizer.model != "bert" && metadata.try_bool("tokenizer.ggml.add_sep_token").value_or(false);
  if (const auto separator = tokenizer.separator ? tokenizer.separator : tokenizer.eos;
      separates && separator)
    pair.tokens.push_back(*separator);
  const std::size_t first = pair.tokens.size();
  const auto second = tokenizer.encode(document, {.add_special = false});
  pair.tokens.insert(pair.tokens.end(), second.begin(), second.end());
  if (tokenizer.add_eos && tokenizer.eos) pair.tokens.push_back(*tokenizer.eos);
  pair.types.assign(first, 0);
  pair.types.resize(pair.tokens.size(), 1);
  return pair;
}

void truncate(const models::Model& model, Passage& passage, std::int64_t limit) {
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(1, limit));
  if (passage.tokens.size() <= most) return;
  const std::int32_t last = passage.tokens.back();
  passage.tokens.resize(most);
  if (model.tokenizer().add_eos) passage.tokens.back() = last;
  if (!passage.types.empty()) passage.types.resize(most);
}

Pooling default_pooling(const models::Model& model) {
  if (const auto pooling = model.hyperparameters().pooling) return *pooling;
  return model.gives_text() && !model.has_prompt_encoder() ? Pooling::last : Pooling::mean;
}

struct Embedder::Impl {
  std::shared_ptr<const models::Model> model;
  EmbedderOptions options;
  Pooling pooling;
  std::optional<backends::Program> program;
  std::int64_t context = 0, width = 0;
  std::unique_ptr<backends::Buffer> cache;
  std::vector<graph::KvLayer> layers;
  std::uint32_t pages = 0;

  void set_up();
  std::size_t run(std::span<const Passage> texts, std::span<std::vector<float>> results);
};

void Embedder::Impl::set_up() {
  if (options.context < 0 || options.context > INT32_MAX || options.batch < 1 || options.batch > INT32_MAX)
    fail(ErrorCode::invalid_argument, "context {} and batch {}: allowed are 0 and 1 to {}", options.context,
         options.batch, INT32_MAX);
  graph::Graph graph = model->build_vector_graph(pooling);
  const std::int64_t trained = model->hyperparameters().trained_context;
  context = options.context > 0 ? options.context : std::min(trained, EmbedderOptions::kDefaultContext);
  if (context > graph.position_limit)
    fail(ErrorCode::invalid_argument,
         "-c is {}: the model has learned {} positions and knows none beyond them", context,
         graph.position_limit);
  if (context > trained)
    log::warning(
        "the context of {} tokens exceeds the {} the model was trained for; vectors get worse beyond",
        context, trained);
  const std::int64_t rows = std::max(context, options.batch);
  const std::int64_t outputs = pooling == Pooling::none ? rows : std::min(rows, kMostTexts);
  width = graph.value(graph.output).width;

  // Texts are computed whole: a layer's keys and values are needed while it runs, so all layers share a
  // place.
  pages = static_cast<std::uint32_t>((rows + graph::kPagePositions - 1) / graph::kPagePositions + kMostTexts);
  std::size_t k_bytes = 0, v_bytes = 0;
  for (const graph::KvShape& shape : graph.kv_shapes) {
    const auto bytes = [&](std::int64_t dim) {
      return static_cast<std::size_t>(shape.kv_heads * graph::kPagePositions * dim) * sizeof(float);
    };
    k_bytes = std::max(k_bytes, bytes(shape.key_dim));
    v_bytes = std::max(v_bytes, bytes(shape.value_dim));
  }
  const std::uint64_t needed = model->weight_bytes() + graph::plan_memory(graph, rows, outputs).bytes +
                               pages * std::uint64_t{k_bytes + v_bytes};
  const std::uint64_t budget = options.memory_budget > 0 ? options.memory_budget : free_memory().bytes;
  if (needed > budget)
    fail(ErrorCode::out_of_memory, "texts of {} tokens (-c) need {} with the weights, there are {}", context,
         format_bytes(needed), format_bytes(budget));
  const auto kv_layers = static_cast<std::size_t>(graph.kv_layers);
  program.emplace(std::move(graph), options.backends, rows, outputs);
  cache = options.backends.front()->allocate(0, std::max<std::size_t>(1, pages * (k_bytes + v_bytes)));
  layers.assign(kv_layers,
                {cache->data(), cache->data() + pages * k_bytes, k_bytes, v_bytes, DType::f32, DType::f32});
}

/// Computes the first texts, as many as one step takes; how many those are.
std::size_t Embedder::Impl::run(std::span<const Passage> texts, std::span<std::vector<float>> results) {
  std::vector<std::int32_t> tokens, types;
  std::vector<std::uint32_t> page_numbers(pages), outputs;
  std::iota(page_numbers.begin(), page_numbers.end(), 0U);
  std::vector<graph::SequenceRows> sequences;
  const bool has_types = program->graph().type_limit > 1;
  std::size_t count = 0, page = 0;
  for (; count < texts.size() && count < static_cast<std::size_t>(kMostTexts); ++count) {
    const Passage& text = texts[count];
    const std::size_t first = tokens.size(), size = text.tokens.size();
    if (count > 0 && first + size > static_cast<std::size_t>(options.batch)) break;
    const std::size_t needed = (size + graph::kPagePositions - 1) / graph::kPagePositions;
    sequences.push_back({static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(size), 0,
                         std::span(page_numbers).subspan(page, needed)});
    page += needed;
    tokens.insert(tokens.end(), text.tokens.begin(), text.tokens.end());
    if (has_types) {
      types.insert(types.end(), text.types.begin(), text.types.end());
      types.resize(tokens.size(), 0);
    }
    for (std::size_t row = pooling == Pooling::none ? first : first + size - 1; row < first + size; ++row)
      outputs.push_back(static_cast<std::uint32_t>(row));
  }
  std::vector<float> rows(outputs.size() * static_cast<std::size_t>(width));
  program->run({tokens, sequences, layers, outputs, rows.data(), types});
  auto next = rows.begin();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t vectors = pooling == Pooling::none ? texts[i].tokens.size() : 1;
    const auto end = next + static_cast<std::ptrdiff_t>(vectors) * width;
    results[i].assign(next, end);
    next = end;
  }
  return count;
}

Embedder::Embedder(std::shared_ptr<const models::Model> model, EmbedderOptions options)
    : impl_(std::make_unique<Impl>()) {
  impl_->pooling = options.pooling.value_or(default_pooling(*model));
  impl_->model = std::move(model);
  impl_->options = std::move(options);
  if (impl_->options.backends.empty()) impl_->options.backends.push_back(backends::make_cpu_backend());
  impl_->set_up();
}
Embedder::~Embedder() = default;
Embedder::Embedder(Embedder&&) noexcept = default;

const models::Model& Embedder::model() const { return *impl_->model; }
Pooling Embedder::pooling() const { return impl_->pooling; }
std::int64_t Embedder::width() const { return impl_->width; }
std::int64_t Embedder::context() const { return impl_->context; }
std::uint64_t Embedder::bytes() const { return impl_->program->scratch_bytes() + impl_->cache->size(); }

void Embedder::check(std::span<const Passage> texts) const {
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::vector<std::int32_t>& tokens = texts[i].tokens;
    if (tokens.empty()) fail(ErrorCode::invalid_argument, "text {} has no tokens, expected at least one", i);
    if (std::ssize(tokens) > impl_->context)
      fail(ErrorCode::context_overflow, "text {} has {} tokens, the context holds {}", i, tokens.size(),
           impl_->context);
    for (const std::int32_t token : tokens)
      if (token < 0 || token >= impl_->program->graph().token_limit)
        fail(ErrorCode::invalid_argument, "text {} holds token {}, the vocabulary has 0 to {}", i, token,
             impl_->program->graph().token_limit - 1);
  }
}

std::vector<std::vector<float>> Embedder::embed(std::span<const Passage> texts) {
  check(texts);
  std::vector<std::vector<float>> results(texts.size());
  for (std::size_t done = 0; done < texts.size();)
    done += impl_->run(texts.subspan(done), std::span(results).subspan(done));
  return results;
}

void normalize(std::span<float> vector) {
  double sum = 0;
  for (const float value : vector) sum += static_cast<double>(value) * static_cast<double>(value);
  if (sum == 0) return;
  const double length = std::sqrt(sum);
  for (float& value : vector) value = static_cast<float>(static_cast<double>(value) / length);
}

}  // namespace quipu::engine
