#include "models/adapter.hpp"

#include <cmath>

#include "convert/peft.hpp"
#include "core/checksum.hpp"
#include "core/error.hpp"

namespace quipu::models {
namespace {

constexpr std::string_view kA = ".lora_a", kB = ".lora_b";

void check_type(const gguf::File& file, std::string_view key, std::string_view expected) {
  const auto found = file.metadata().try_string(key);
  if (!found || *found != expected)
    fail(ErrorCode::bad_file, "{}: {} is {}, expected \"{}\"", printable(file.name(), 1000), key,
         found ? "\"" + printable(*found) + "\"" : "missing", expected);
}

/// A shape with the dimensions from the second on, as messages show it.
[[noreturn]] void refuse_shape(const std::string& file, const TensorView& found, const std::string& expected,
                               std::string_view weight, const TensorView& of_model) {
  fail(ErrorCode::bad_file, "{}: tensor {} is {}, expected {}: {} of the model is {}", printable(file, 1000),
       printable(found.name), shape_text(found), expected, printable(weight), shape_text(of_model));
}

}  // namespace

std::shared_ptr<const Adapter> Adapter::load(const std::filesystem::path& path, const Model& model) {
  return from_file(convert::open_adapter(path, model.file()), model);
}

std::shared_ptr<const Adapter> Adapter::from_file(gguf::File file, const Model& model) {
  auto adapter = std::make_shared<Adapter>();
  adapter->path_ = file.name();
  adapter->file_ = std::move(file);
  adapter->read(model);
  const std::shared_ptr<const Adapter> all[] = {adapter};
  with_adapters(model.build_graph(), model, all, nullptr);  // every part has its place, or this throws
  return adapter;
}

const LowRank* Adapter::find(std::string_view weight) const {
  const auto it = parts_.find(weight);
  return it == parts_.end() ? nullptr : &it->second;
}

/// A weight that every backend has a float kernel for: adapters are small, so quantised ones are decoded.
TensorView Adapter::usable(const TensorView& tensor) {
  const DTypeInfo& type = info(tensor.dtype);
  if (type.is_integer || type.decode == nullptr)
    fail(ErrorCode::unsupported, "{}: tensor {} has type {}, expected F32, F16, BF16 or a quantised one",
         printable(path_, 1000), printable(tensor.name), type.name);
  if (tensor.dtype == DType::f32 || tensor.dtype == DType::f16 || tensor.dtype == DType::bf16) return tensor;
  auto values = std::make_unique<std::vector<float>>(static_cast<std::size_t>(tensor.elements()));
  for (std::int64_t row = 0; row < tensor.rows(); ++row)
    type.decode(tensor.data + static_cast<std::size_t>(row) * tensor.row_bytes(),
                values->data() + row * tensor.width(), static_cast<std::size_t>(tensor.width()));
  TensorView decoded = tensor;
  decoded.dtype = DType::f32;
  decoded.data = reinterpret_cast<const std::byte*>(values->data());
  decoded_.push_back(std::move(values));
  return decoded;
}

void Adapter::read(const Model& model) {
  check_type(file_, "general.type", "adapter");
  check_type(file_, "general.architecture", model.hyperparameters().architecture);
  check_type(file_, "adapter.type", "lora");
  if (file_.metadata().find("adapter.alora.invocation_tokens") != nullptr)
    fail(ErrorCode::unsupported,
         "{}: an adapter that begins at invocation tokens (aLoRA) is not supported, expected a plain LoRA",
         printable(path_, 1000));
  const double alpha = file_.metadata().get_float("adapter.lora.alpha");
  if (!std::isfinite(alpha))
    fail(ErrorCode::bad_file, "{}: adapter.lora.alpha is {}, expected a number", printable(path_, 1000),
         alpha);

  std::uint64_t digest = 0;
  for (const TensorView& tensor : file_.tensors()) {
    const std::string_view name = tensor.name;
    if (!name.ends_with(kA) && !name.ends_with(kB))
      fail(ErrorCode::unsupported, "{}: tensor {} is no part of a LoRA, expected names that end in {} or {}",
           printable(path_, 1000), printable(name), kA, kB);
    digest = xxh64(std::as_bytes(std::span(tensor.name)), digest);
    digest = xxh64({tensor.data, tensor.bytes()}, digest);
    bytes_ += tensor.bytes();
    const std::string weight(name.substr(0, name.size() - kA.size()));
    const bool is_a = name.ends_with(kA);
    if (file_.find_tensor(weight + std::string(is_a ? kB : kA)) == nullptr)
      fail(ErrorCode::bad_file, "{}: tensor {} stands alone, expected {} beside it", printable(path_, 1000),
           printable(name), printable(weight + std::string(is_a ? kB : kA)));
    if (is_a)
      parts_[weight].a = usable(tensor);
    else
      parts_[weight].b = usable(tensor);
  }
  if (parts_.empty()) fail(ErrorCode::bad_file, "{}: the adapter has no tensors", printable(path_, 1000));

  for (auto& [name, part] : parts_) {
    const std::string& weight = name;  // clang 14 does not let a lambda use a structured binding
    const bool is_embedding = weight == "token_embd.weight";
    const TensorView* base = model.file().find_tensor(weight);
    if (base == nullptr && weight == "output.weight") base = model.file().find_tensor("token_embd.weight");
    if (base == nullptr)
      fail(ErrorCode::bad_file, "{}: tensor {} changes {}, which the model has not", printable(path_, 1000),
           printable(part.a.name), printable(weight));
    const std::int64_t rank = part.b.shape[0], in = base->shape[0], out = base->shape[1];
    if (rank < 1) refuse_shape(path_, part.b, "at least one element a row", weight, *base);
    const auto expect = [&](const TensorView& tensor, std::int64_t width, std::int64_t rows) {
      TensorView wanted = *base;
      wanted.shape[0] = width;
      wanted.shape[1] = rows;
      if (tensor.shape != wanted.shape) refuse_shape(path_, tensor, shape_text(wanted), weight, *base);
    };
    if (is_embedding) {
      expect(part.a, rank, out);
      expect(part.b, rank, in);
    } else {
      expect(part.a, in, rank);
      expect(part.b, rank, out);
    }
    part.scale = static_cast<float>(alpha / static_cast<double>(rank));
    if (!std::isfinite(part.scale))
      fail(ErrorCode::bad_file, "{}: adapter.lora.alpha is {}, which is no factor for a rank of {}",
           printable(path_, 1000), alpha, rank);
  }
  const std::string alpha_text = fmt::format("{:a}", alpha);
  fingerprint_ = xxh64(std::as_bytes(std::span(alpha_text)), digest);
}

// ---- control vectors ----

std::shared_ptr<const ControlVector> ControlVector::load(std::span<const Part> parts, const Model& model,
                                                         std::int64_t first, std::int64_t last) {
  auto control = std::make_shared<ControlVector>();
  for (const Part& part : parts)
    control->add(gguf::File::open(part.path), part.scale, model.hyperparameters());
  const std::int64_t layers = model.hyperparameters().layers;
  const std::int64_t from = first < 0 ? 0 : first, to = last < 0 ? layers : last;
  if (from > to || from > layers || to > layers)
    fail(ErrorCode::invalid_argument,
         "--control-vector-layer-range is {} {}, expected a first and a last block of the model's {}", from,
         to, layers);
  control->keep_blocks(from, to);
  with_adapters(model.build_graph(), model, {}, control.get());
  return control;
}

void ControlVector::add(const gguf::File& file, float scale, const Hyperparameters& hyper) {
  check_type(file, "general.architecture", "controlvector");
  constexpr std::string_view kPrefix = "direction.";
  bool any = false;
  for (const TensorView& tensor : file.tensors()) {
    const std::string where = printable(file.name(), 1000) + ": tensor " + printable(tensor.name);
    if (!tensor.name.starts_with(kPrefix))
      fail(ErrorCode::bad_file, "{} is no direction, expected names like {}1", where, kPrefix);
    const std::string number = tensor.name.substr(kPrefix.size());
    const bool digits = !number.empty() && number.size() < 6 &&
                        number.find_first_not_of("0123456789") == std::string::npos && number[0] != '0';
    const std::uint32_t block = digits ? static_cast<std::uint32_t>(std::stoul(number)) : 0;
    if (block == 0 || block >= hyper.layers)
      fail(ErrorCode::bad_file, "{} steers block {}, expected 1 to {}, the last of the model", where,
           digits ? number : "of no number", hyper.layers - 1);
    TensorView wanted;
    wanted.shape = {hyper.embedding, 1, 1, 1};
    if (tensor.shape != wanted.shape || tensor.dtype != DType::f32)
      fail(ErrorCode::bad_file, "{} is {} {}, expected F32 {}", where, to_string(tensor.dtype),
           shape_text(tensor), shape_text(wanted));
    std::vector<float>& sum = directions_[block];
    std::vector<float> values(hyper.embedding);
    info(DType::f32).decode(tensor.data, values.data(), values.size());
    sum.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum[i] += scale * values[i];
      if (!std::isfinite(sum[i]))
        fail(ErrorCode::bad_file, "{} holds {} at element {}, expected finite numbers", where, values[i], i);
    }
    any = true;
  }
  if (!any)
    fail(ErrorCode::bad_file, "{}: the control vector has no directions", printable(file.name(), 1000));
}

void ControlVector::keep_blocks(std::int64_t first, std::int64_t last) {
  std::erase_if(directions_, [&](const auto& entry) { return entry.first < first || entry.first > last; });
}

std::optional<TensorView> ControlVector::direction(std::uint32_t block) const {
  const auto it = directions_.find(block);
  if (it == directions_.end()) return std::nullopt;
  TensorView view;
  view.name = "direction." + std::to_string(block);
  view.dtype = DType::f32;
  view.shape = {static_cast<std::int64_t>(it->second.size()), 1, 1, 1};
  view.data = reinterpret_cast<const std::byte*>(it->second.data());
  return view;
}

std::uint64_t ControlVector::fingerprint() const {
  std::uint64_t digest = 0;
  for (const auto& [block, values] : directions_) {
    digest = xxh64(std::as_bytes(std::span(&block, 1)), digest);
    digest = xxh64(std::as_bytes(std::span(values)), digest);
  }
  return digest;
}

}  // namespace quipu::models
