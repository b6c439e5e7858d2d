#include "models/model.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "convert/convert.hpp"
#include "core/checksum.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/near_matches.hpp"

namespace quipu::models {
namespace {

const Architecture& architecture_of(const gguf::File& file) {
  const std::string& name = file.metadata().get_string("general.architecture");
  if (file.tensors().empty())
    fail(ErrorCode::bad_file,
         "{}: this file holds a vocabulary only (it has no tensors), expected the weights of a model",
         printable(file.name()));
  if (const Architecture* found = find_architecture(name)) return *found;
  const std::vector<std::string_view> near = near_matches(name, architecture_names());
  fail(ErrorCode::unsupported,
       "{}: general.architecture is '{}', which is not supported{}; the supported ones are {}",
       printable(file.name()), printable(name),
       near.empty() ? "" : fmt::format(" (near it: {})", fmt::join(near, ", ")),
       fmt::join(architecture_names(), ", "));
}

/// What the file holds and the architecture has no place for would change the output if it did: said aloud.
void warn_about_unused(const gguf::File& file, const std::set<std::string, std::less<>>& used,
                       const graph::Graph& graph, const RopeOverrides& rope, std::string_view architecture,
                       std::vector<std::string>& warnings) {
  std::size_t count = 0;
  std::string first;
  for (const TensorView& tensor : file.tensors())
    if (!used.contains(tensor.name) && count++ == 0) first = printable(tensor.name);
  if (count > 0)
    warnings.push_back(fmt::format("{} of {} tensors are not used by architecture {} (the first is {})",
                                   count, file.tensors().size(), architecture, first));

  const bool given = rope.type || rope.factor || rope.freq_base || rope.original_context ||
                     rope.extrapolation_factor || rope.attention_factor || rope.beta_fast || rope.beta_slow;
  const bool rotates = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const graph::Node& node) {
    return std::holds_alternative<graph::Rope>(node.op);
  });
  if (given && !rotates)
    warnings.push_back(fmt::format("the RoPE options have no effect: architecture {} has no rotary positions",
                                   architecture));
}

/// A setting of the file as text, whatever its type.
struct SettingText {
  std::string operator()(const gguf::Array& array) const {
    return std::visit(
        [](const auto& items) {
          std::string text;
          if constexpr (!std::is_same_v<std::decay_t<decltype(items)>, std::vector<gguf::Array>>)
            text = fmt::format("{}", fmt::join(items, ","));
          return text;
        },
        array.items);
  }
  std::string operator()(double value) const { return fmt::format("{:a}", value); }
  template <class T>
  std::string operator()(const T& value) const {
    return fmt::format("{}", value);
  }
};

/// Digest of the settings that shape the computation, the tensor table, and the start, middle and end of
/// every tensor.
std::uint64_t fingerprint_of(const Hyperparameters& h, const gguf::File& file) {
  constexpr std::size_t kSample = 64;
  const RopeScaling& s = h.rope_scaling;
  std::string text = fmt::format(
      "{} {} {} {} {} [{}] [{}] [{}] {} {} {} {:a} {} {:a} {} {:a} {:a} {:a} {:a} {:a} {}\n", h.architecture,
      h.layers, h.embedding, h.vocab, h.trained_context, fmt::join(h.heads, ","), fmt::join(h.kv_heads, ","),
      fmt::join(h.feed_forward, ","), h.key_dim, h.value_dim, h.rope_dims, h.rope_freq_base,
      static_cast<int>(s.type), s.factor, s.original_context, s.extrapolation_factor, s.attention_factor,
      s.beta_fast, s.beta_slow, h.norm_eps, h.sliding_window);
  text += fmt::format("{:a}\n", s.log_multiplier);
  // Rotary settings stand above: there the user's come before the file's.
  for (const gguf::Metadata::Entry& entry : file.metadata().entries())
    if (entry.key.starts_with(h.architecture + ".") && entry.key.find(".rope.") == std::string::npos)
      text += fmt::format("{} {}\n", entry.key, std::visit(SettingText{}, entry.value.data));
  for (const TensorView& tensor : file.tensors()) {
    text += fmt::format("{} {} {}\n", tensor.name, to_string(tensor.dtype), fmt::join(tensor.shape, "x"));
    const std::size_t bytes = tensor.bytes(), size = std::min(bytes, kSample);
    for (const std::size_t at : {std::size_t{0}, (bytes - size) / 2, bytes - size})
      text.append(reinterpret_cast<const char*>(tensor.data) + at, size);
  }
  return xxh64(std::as_bytes(std::span(text)));
}

std::string short_count(std::uint64_t n) {
  const auto value = static_cast<double>(n);
  if (n >= 10'000'000'000) return fmt::format("{:.0f}B", value / 1e9);
  if (n >= 1'000'000'000) return fmt::format("{:.1f}B", value / 1e9);
  if (n >= 1'000'000) return fmt::format("{:.0f}M", value / 1e6);
  return fmt::format("{:.0f}K", value / 1e3);
}

}  // namespace

std::shared_ptr<const Model> Model::load(const std::filesystem::path& path, const LoadOptions& options) {
  const auto model = std::make_shared<Model>();
  model->file_ = convert::open_model(path, {.mode = options.mode}, &model->warnings_);
  const gguf::File& file = model->file_;
  const Architecture& architecture = architecture_of(file);
  model->hyper_ = read_hyperparameters(file, architecture.name, options.rope, model->warnings_);
  model->tokenizer_ = text::Tokenizer::from_metadata(file.metadata());
  try {
    model->chat_template_ = text::ChatTemplate::from_metadata(file.metadata());
  } catch (const Error& error) {
    model->chat_template_error_ = error;
  }
  // The tokenizer has made its own of these, which can be as large as the weights of a small layer.
  for (const char* key : {"tokens", "merges", "scores", "token_type", "precompiled_charsmap"})
    model->file_.forget(std::string("tokenizer.ggml.") + key);
  for (const TensorView& tensor : file.tensors()) {
    model->weight_bytes_ += tensor.bytes();
    model->parameters_ += static_cast<std::uint64_t>(tensor.elements());
  }
  // Binds every weight once, so that a missing or misshapen tensor is an error of loading.
  std::set<std::string, std::less<>> used;
  graph::Graph graph;
  if (model->has_classifier()) graph = model->build(Pooling::rank, &used);
  const bool is_ranker = model->has_classifier() && model->hyper_.pooling == Pooling::rank;
  if (!is_ranker)
    graph = model->build(model->gives_text() ? std::nullopt : std::optional(Pooling::mean), &used);
  if (model->has_prompt_encoder()) model->build(std::nullopt, &used, true);
  warn_about_unused(file, used, graph, options.rope, architecture.name, model->warnings_);
  model->fingerprint_ = fingerprint_of(model->hyper_, file);
  for (const std::string& warning : model->warnings_)
    log::warning("{}: {}", printable(path.filename().string()), warning);
  return model;
}

const text::ChatTemplate* Model::chat_template() const {
  if (chat_template_error_) throw *chat_template_error_;
  return chat_template_.get();
}

graph::Graph Model::build(std::optional<Pooling> vectors, std::set<std::string, std::less<>>* used,
                          bool encodes) const {
  Hyperparameters hyper = hyper_;
  hyper.vectors = vectors;
  hyper.encodes = encodes;
  return find_architecture(hyper.architecture)->build(hyper, WeightSource(file_, used));
}

graph::Graph Model::build_graph() const {
  return build(gives_text() ? std::nullopt : std::optional(Pooling::none), nullptr);
}

graph::Graph Model::build_encoder_graph() const {
  if (!has_prompt_encoder())
    fail(ErrorCode::internal, "architecture {} has no encoder of prompts", hyper_.architecture);
  return build(std::nullopt, nullptr, true);
}

bool Model::has_prompt_encoder() const { return find_architecture(hyper_.architecture)->prompt_encoder; }

std::int64_t Model::trained_positions() const {
  return std::int64_t{hyper_.trained_context} * (has_prompt_encoder() ? 2 : 1);
}

graph::Graph Model::build_vector_graph(Pooling pooling) const {
  if (pooling == Pooling::rank && !has_classifier())
    fail(ErrorCode::unsupported,
         "{} has no classification head (tensor cls.output.weight or cls.weight), expected a reranker",
         printable(file_.name()));
  return build(pooling, nullptr);
}

bool Model::gives_text() const { return hyper_.causal && !find_architecture(hyper_.architecture)->encoder; }

bool Model::has_classifier() const {
  return file_.find_tensor("cls.output.weight") != nullptr || file_.find_tensor("cls.weight") != nullptr;
}

std::string Model::description() const {
  std::map<DType, std::int64_t> elements;
  for (const TensorView& tensor : file_.tensors()) elements[tensor.dtype] += tensor.elements();
  const auto most = std::max_element(elements.begin(), elements.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return fmt::format("{} {} {}", hyper_.architecture, short_count(parameters_), to_string(most->first));
}

}  // namespace quipu::models
