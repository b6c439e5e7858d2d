// The C++ interface over models and engine.
#include "quipu/quipu.hpp"

#include <mutex>
#include <optional>

#include "core/error.hpp"
#include "core/threads.hpp"
#include "engine/embedder.hpp"
#include "engine/engine.hpp"
#include "models/model.hpp"
#include "text/conversation/chat_format.hpp"

namespace quipu {

std::string_view version() { return QUIPU_VERSION; }

struct Model::Impl {
  std::shared_ptr<const models::Model> model;
  mutable std::once_flag probed = {};
  mutable std::optional<text::ChatFormat> chat = {};

  /// Made at the first use: probing renders the template some twenty times.
  text::Rendered render(std::span<const ChatMessage> messages) const {
    if (model->chat_template() == nullptr)
      fail(ErrorCode::unsupported, "{} has no chat template", printable(model->file().name()));
    std::call_once(probed, [&] { chat.emplace(*model->chat_template()); });
    text::Conversation conversation;
    for (const ChatMessage& message : messages)
      conversation.messages.push_back({message.role, message.content});
    return chat->prompt(conversation).rendered;
  }
};

Model::Model(const std::filesystem::path& path, const ModelOptions& options) {
  models::LoadOptions load;
  load.mode = options.memory_map ? MappedFile::Mode::map : MappedFile::Mode::read;
  auto impl = std::make_shared<Impl>();
  impl->model = models::Model::load(path, load);
  impl_ = std::move(impl);
}

std::vector<TokenId> Model::tokenize(std::string_view text, bool add_special, bool parse_special) const {
  return impl_->model->tokenizer().encode(text, {add_special, parse_special});
}

std::string Model::detokenize(std::span<const TokenId> tokens, bool special) const {
  const text::Tokenizer& tokenizer = impl_->model->tokenizer();
  for (const TokenId token : tokens)
    if (token < 0 || static_cast<std::size_t>(token) >= tokenizer.size())
      fail(ErrorCode::invalid_argument, "token {} is outside the vocabulary of {} tokens", token,
           tokenizer.size());
  return tokenizer.decode(tokens, special);
}

bool Model::has_chat_template() const { return impl_->model->chat_template() != nullptr; }

std::string Model::chat_prompt(std::span<const ChatMessage> messages) const {
  return impl_->render(messages).text;
}

std::size_t Model::vocabulary_size() const { return impl_->model->tokenizer().size(); }
std::int64_t Model::trained_context() const { return impl_->model->hyperparameters().trained_context; }
std::string Model::description() const { return impl_->model->description(); }

struct Session::Impl {
  explicit Impl(Model m, engine::EngineOptions options)
      : model(std::move(m)), engine(model.impl_->model, std::move(options)) {}
  Model model;
  engine::Engine engine;
  std::optional<memory::Sequence> memory;
};

namespace {

DType cache_type(const std::string& name) {
  const DTypeInfo* type = find_dtype(std::string_view(name));
  if (type == nullptr) fail(ErrorCode::invalid_argument, "unknown cache type {}", printable(name));
  return type->dtype;
}

}  // namespace

Session::Session(const Model& model, const SessionOptions& options) {
  if (options.threads < 0)
    fail(ErrorCode::invalid_argument, "threads is {}, expected 0 (automatic) or more", options.threads);
  engine::EngineOptions engine_options;
  engine_options.context = options.context;
  engine_options.batch = options.batch;
  engine_options.memory_budget = options.memory_budget;
  engine_options.k_dtype = cache_type(options.key_type);
  engine_options.v_dtype = cache_type(options.value_type);
  const int threads = options.threads > 0 ? options.threads : default_threads().count;
  engine_options.backends.push_back(
      backends::make_cpu_backend({std::make_shared<ThreadPool>(threads), {UINT64_MAX}}));
  impl_ = std::make_shared<Impl>(model, std::move(engine_options));
}

Generation Session::generate(std::span<const TokenId> prompt, const GenerateOptions& options) {
  engine::Request request;
  request.prompt.assign(prompt.begin(), prompt.end());
  request.max_tokens = options.max_tokens;
  request.stop = options.stop;
  request.sampling.seed = options.seed;
  request.sampling.temperature = options.temperature;
  request.sampling.top_k = options.top_k;
  request.sampling.top_p = options.top_p;
  request.sampling.min_p = options.min_p;
  request.sampling.repeat_penalty = options.repeat_penalty;
  engine::Engine& engine = impl_->engine;
  bool go_on = true;
  if (options.on_text)
    request.on_token = [&](const engine::TokenEvent& event) {
      if (go_on && !event.text.empty()) go_on = options.on_text(event.text);
    };
  const engine::RequestId id = engine.submit(std::move(request), impl_->memory ? &*impl_->memory : nullptr);
  try {
    bool cancelled = false;
    while (engine.step()) {
      if (go_on || cancelled) continue;
      engine.cancel(id);
      cancelled = true;
    }
  } catch (...) {  // the callback's exception: the request must not stay behind
    engine.cancel(id);
    while (engine.step()) {
    }
    engine.take_result(id);
    throw;
  }
  std::optional<engine::Result> result = engine.take_result(id);
  if (!result || result->stop == engine::StopReason::error)
    fail(ErrorCode::internal, "generation failed: {}", result ? result->error : "no result");
  std::optional<memory::Sequence> memory = engine.take_sequence(id);
  impl_->memory.reset();
  if (memory) impl_->memory.emplace(std::move(*memory));
  Generation generation;
  generation.text = std::move(result->text);
  generation.tokens = std::move(result->tokens);
  generation.stop = engine::to_string(result->stop);
  generation.prompt_tokens = result->usage.prompt_tokens;
  generation.cached_tokens = result->usage.cached_tokens;
  return generation;
}

Generation Session::generate(std::string_view prompt, const GenerateOptions& options) {
  return generate(impl_->model.tokenize(prompt), options);
}

Generation Session::chat(std::span<const ChatMessage> messages, const GenerateOptions& options) {
  // What a message spells stays text: only the template's own control tokens count.
  const Model::Impl& model = *impl_->model.impl_;
  return generate(text::encode_rendered(model.model->tokenizer(), model.render(messages)), options);
}

void Session::reset() { impl_->memory.reset(); }

void Session::save(const std::filesystem::path& path) {
  impl_->engine.check_continues();
  if (!impl_->memory) impl_->memory.emplace(impl_->engine.new_sequence());
  impl_->memory->save(path, impl_->engine.model().fingerprint());
}

void Session::restore(const std::filesystem::path& path) {
  impl_->engine.check_continues();
  memory::Sequence fresh = impl_->engine.new_sequence();
  fresh.restore(path, impl_->engine.model().fingerprint());
  impl_->memory.emplace(std::move(fresh));
}

std::int64_t Session::context() const { return impl_->engine.memory().context; }

struct Embedder::Impl {
  Model model;
  bool normalize;
  engine::Embedder embedder;

  std::vector<std::vector<float>> run(std::span<const engine::Passage> texts) {
    auto vectors = embedder.embed(texts);
    if (!normalize || embedder.pooling() == models::Pooling::rank) return vectors;
    const auto width = static_cast<std::size_t>(embedder.width());
    for (std::vector<float>& rows : vectors)
      for (std::size_t at = 0; at < rows.size(); at += width)
        engine::normalize(std::span(rows).subspan(at, width));
    return vectors;
  }
};

Embedder::Embedder(const Model& model, const EmbedderOptions& options) {
  if (options.threads < 0)
    fail(ErrorCode::invalid_argument, "threads is {}, expected 0 (automatic) or more", options.threads);
  engine::EmbedderOptions own;
  if (!options.pooling.empty()) {
    own.pooling = models::find_pooling(options.pooling);
    if (!own.pooling)
      fail(ErrorCode::invalid_argument, "pooling is \"{}\", expected none, mean, cls, last or rank",
           printable(options.pooling));
  }
  own.context = options.context;
  own.batch = options.batch;
  own.memory_budget = options.memory_budget;
  const int threads = options.threads > 0 ? options.threads : default_threads().count;
  own.backends.push_back(backends::make_cpu_backend({std::make_shared<ThreadPool>(threads), {UINT64_MAX}}));
  impl_ = std::make_shared<Impl>(
      Impl{model, options.normalize, engine::Embedder(model.impl_->model, std::move(own))});
}

std::vector<std::vector<float>> Embedder::embed(std::span<const std::string> texts) {
  std::vector<engine::Passage> passages;
  for (const std::string& text : texts)
    passages.push_back(engine::make_passage(impl_->embedder.model(), text));
  return impl_->run(passages);
}

std::vector<std::vector<float>> Embedder::embed(std::span<const std::vector<TokenId>> texts) {
  std::vector<engine::Passage> passages;
  for (const std::vector<TokenId>& tokens : texts) passages.push_back({tokens});
  return impl_->run(passages);
}

std::vector<float> Embedder::rerank(std::string_view query, std::span<const std::string> documents) {
  if (impl_->embedder.pooling() != models::Pooling::rank)
    fail(ErrorCode::unsupported, "the pooling is {}, expected rank: {} gives vectors, not scores",
         to_string(impl_->embedder.pooling()), printable(impl_->embedder.model().file().name()));
  std::vector<engine::Passage> passages;
  for (const std::string& document : documents)
    passages.push_back(engine::make_pair(impl_->embedder.model(), query, document));
  std::vector<float> scores;
  for (const std::vector<float>& row : impl_->run(passages)) scores.push_back(row.front());
  return scores;
}

std::string_view Embedder::pooling() const { return to_string(impl_->embedder.pooling()); }
std::int64_t Embedder::width() const { return impl_->embedder.width(); }
std::int64_t Embedder::context() const { return impl_->embedder.context(); }

}  // namespace quipu
