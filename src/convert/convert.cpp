#include "convert/convert.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <system_error>

#include "convert/encoder.hpp"
#include "convert/family.hpp"
#include "convert/mixes.hpp"
#include "convert/plan.hpp"
#include "convert/tokenizer/tokenizer.hpp"
#include "core/error.hpp"
#include "core/near_matches.hpp"
#include "core/threads.hpp"

namespace quipu::convert {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostLayers = 4096;

/// The family that `architectures` names.
const Family& family_of(const JsonFile& config) {
  const auto classes = config.try_texts("architectures");
  if (!classes || classes->empty()) config.reject_missing("architectures");
  for (const std::string& name : *classes)
    if (const Family* family = find_family(name)) return *family;
  const std::vector<std::string_view> near = near_matches(classes->front(), known_classes());
  fail(ErrorCode::unsupported, "{}: architecture \"{}\" is not supported{}; the supported ones are {}",
       printable(config.name(), 1000), printable(classes->front()),
       near.empty() ? "" : fmt::format(" (near it: {})", fmt::join(near, ", ")),
       fmt::join(known_classes(), ", "));
}

void refuse_quantized(const JsonFile& config, const Family& family) {
  const auto* quantization = config.find("quantization_config");
  const std::string method =
      config.try_text("quantization_config.quant_method").value_or("quantization_config");
  if (quantization == nullptr || (!family.quantization.empty() && method == family.quantization)) return;
  fail(ErrorCode::unsupported,
       "{}: the weights are quantised ({}), expected F32, F16 or BF16: convert the original model",
       printable(config.name(), 1000), printable(method));
}

void add_general(const fs::path& folder, const Family& family, gguf::Metadata& metadata) {
  metadata.set("general.architecture", gguf::Value::of_string(std::string(family.name)));
  metadata.set("general.type", gguf::Value::of_string("model"));
  std::error_code error;
  const fs::path whole = fs::canonical(folder, error);
  metadata.set("general.name",
               gguf::Value::of_string(printable((error ? folder : whole).filename().string())));
}

/// `pooling_type` from the modules of a sentence-transformers folder.
void add_pooling(const fs::path& folder, Job& job) {
  constexpr std::uint32_t mean = 1, cls = 2, last = 3;
  for (const char* name : {"1_Pooling", "pooling"}) {
    const auto pooling = JsonFile::try_open(folder / name / "config.json");
    if (!pooling) continue;
    if (pooling->flag_or("pooling_mode_mean_tokens", false)) return job.set_count("pooling_type", mean);
    if (pooling->flag_or("pooling_mode_cls_token", false)) return job.set_count("pooling_type", cls);
    if (pooling->flag_or("pooling_mode_lasttoken", false)) return job.set_count("pooling_type", last);
    const std::string mode = pooling->try_text("pooling_mode").value_or("");
    if (mode == "mean") return job.set_count("pooling_type", mean);
    if (mode == "cls") return job.set_count("pooling_type", cls);
    if (mode == "lasttoken") return job.set_count("pooling_type", last);
    job.warn(printable(pooling->name(), 1000) + ": no pooling that GGUF has a number for (mean, cls, last)");
  }
}

/// The matrices of a sentence-transformers folder that stand behind the pooling, as dense_2 and dense_3.
void add_dense_modules(const fs::path& folder, Job& job) {
  constexpr std::size_t longest = std::size_t{1} << 20;
  const fs::path path_of_list = folder / "modules.json";
  std::error_code error;
  if (!fs::exists(path_of_list, error)) return;
  const MappedFile list(path_of_list, MappedFile::Mode::read);
  if (list.bytes().size() > longest)
    fail(ErrorCode::bad_file, "{}: {} bytes, expected at most {}", printable(path_of_list.string(), 1000),
         list.bytes().size(), longest);
  // A list, where all other files hold an object.
  const std::string_view bytes(reinterpret_cast<const char*>(list.bytes().data()), list.bytes().size());
  const JsonFile modules = JsonFile::parse(fmt::format("{{\"modules\":{}}}", bytes), path_of_list.string());
  const boost::json::value* items = modules.find("modules");
  if (items == nullptr || !items->is_array()) modules.reject("modules", "no array", "a list of modules");
  std::size_t count = 0;
  for (const boost::json::value& item : items->get_array()) {
    const boost::json::object* module = item.if_object();
    const auto text = [&](const char* key) {
      const boost::json::value* value = module == nullptr ? nullptr : module->if_contains(key);
      return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
    };
    if (!text("type").ends_with(".Dense")) continue;
    const std::string path = text("path");
    if (path.empty() || path.find('/') != path.npos || path.find("..") != path.npos)
      modules.reject("path", "\"" + printable(path) + "\"", "the name of a folder beside it");
    const JsonFile config = JsonFile::open(folder / path / "config.json");
    const bool is_plain = config.try_text("activation_function").value_or("").ends_with(".Identity") &&
                          !config.flag_or("bias", true);
    if (job.architecture != "gemma-embedding" || !is_plain || count == 2) {
      job.warn(fmt::format("{}: GGUF has no place for this layer in {}: it is left out, and vectors differ",
                           printable(config.name(), 1000), job.architecture));
      continue;
    }
    const auto file = safetensors::File::open_folder(folder / path, MappedFile::Mode::read);
    const safetensors::Tensor* weight = file.find("linear.weight");
    if (weight == nullptr || weight->shape.size() != 2 || !weight->type->dtype)
      fail(ErrorCode::bad_file, "{}: tensor \"linear.weight\" is missing or no matrix",
           printable(file.name(), 1000));
    std::vector<float> values(static_cast<std::size_t>(weight->elements()));
    info(*weight->type->dtype).decode(weight->bytes.data(), values.data(), values.size());
    const std::string name = fmt::format("dense_{}", 2 + count++);
    TensorSource source;
    source.info = {name + ".weight", DType::f32, {weight->shape[1], weight->shape[0], 1, 1}};
    source.values = std::move(values);
    job.tensors.push_back(std::move(source));
    job.set_count(name + "_feat_in", static_cast<std::uint64_t>(weight->shape[1]));
    job.set_count(name + "_feat_out", static_cast<std::uint64_t>(weight->shape[0]));
  }
}

}  // namespace

bool is_model_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error) && fs::exists(path / "config.json", error);
}

Model Model::open(const fs::path& folder, const Options& options) {
  JsonFile config = JsonFile::open(folder / "config.json");
  const Family& family = family_of(config);
  config.raise("text_config");  // of models that also see or hear
  refuse_quantized(config, family);
  if (family.defaults != nullptr) family.defaults(config);

  Model model;
  model.weights_ = safetensors::File::open_folder(folder, options.mode);
  model.metadata_.set_origin(folder.string());
  Sizes sizes = Sizes::read(config);
  if (sizes[Dim::layers] > static_cast<std::int64_t>(std::min(kMostLayers, model.weights_.tensors().size())))
    config.reject(kLayersKeys, fmt::format("{}", sizes[Dim::layers]),
                  fmt::format("no more than the {} tensors of the checkpoint (and {})",
                              model.weights_.tensors().size(), kMostLayers));
  Job job{config, sizes, family.name, model.metadata_, model.tensors_, model.warnings_, model.weights_};
  add_general(folder, family, model.metadata_);
  plan_tensors(family, model.weights_, job);
  add_tokenizer(folder, config, static_cast<std::size_t>(sizes[Dim::vocab]), {options.pre, family.plain_bpe},
                model.metadata_, model.warnings_);
  add_settings(job, family);
  add_pooling(folder, job);
  add_dense_modules(folder, job);
  return model;
}

std::vector<gguf::TensorInfo> Model::tensor_infos() const {
  std::vector<gguf::TensorInfo> infos;
  for (const TensorSource& tensor : tensors_) infos.push_back(tensor.info);
  return infos;
}

gguf::File open_model(const fs::path& path, const gguf::OpenOptions& options,
                      std::vector<std::string>* warnings) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return gguf::File::open(path, options);
  if (!is_model_folder(path))
    fail(ErrorCode::not_found,
         "{} is a folder without config.json, expected a GGUF file or the folder of a Hugging Face model",
         printable(path.string(), 1000));
  const Model model = Model::open(path, {.mode = options.mode, .pre = {}});
  if (warnings != nullptr) *warnings = model.warnings();
  return model.as_file(default_threads().count);
}

std::uint32_t own_file_type(std::span<const gguf::TensorInfo> tensors) {
  std::map<DType, std::int64_t> values;
  for (const gguf::TensorInfo& tensor : tensors)
    values[tensor.dtype] += tensor.shape[0] * tensor.shape[1] * tensor.shape[2] * tensor.shape[3];
  const auto most = std::max_element(values.begin(), values.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const Mix* mix = most == values.end() ? nullptr : find_mix(to_string(most->first));
  return mix == nullptr ? 0 : mix->file_type;
}

gguf::File Model::as_file(int threads) const {
  const std::vector<gguf::TensorInfo> infos = tensor_infos();
  const std::vector<TensorPlan> plan = plan_own_types(infos);
  gguf::Metadata metadata = metadata_;
  metadata.set("general.file_type", gguf::Value::of_u32(own_file_type(infos)));

  // Tensors that are made lie in one block each, at the alignment of a GGUF file.
  struct Owner {
    std::vector<std::unique_ptr<std::byte[]>> blocks;
  };
  constexpr std::uintptr_t alignment = 32;
  auto owner = std::make_shared<Owner>();
  Encoder encoder(threads);
  std::vector<TensorView> views;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const TensorSource& tensor = tensors_[i];
    TensorView view{tensor.info.name, plan[i].dtype, tensor.info.shape, nullptr};
    const std::span<const std::byte> stored = tensor.stored_bytes();
    const bool is_aligned =
        reinterpret_cast<std::uintptr_t>(stored.data()) % info(plan[i].dtype).block_bytes == 0;
    if (!stored.empty() && tensor.info.dtype == plan[i].dtype && is_aligned) {
      view.data = stored.data();
    } else {
      check_codec(tensor.info, plan[i].dtype, name());
      const std::size_t size = view.bytes();
      owner->blocks.push_back(std::make_unique<std::byte[]>(size + alignment));
      const auto start = reinterpret_cast<std::uintptr_t>(owner->blocks.back().get());
      std::byte* data = owner->blocks.back().get() + (alignment - start % alignment) % alignment;
      std::byte* end = data;
      encoder.encode(tensor, plan[i].dtype, name(), [&](std::span<const std::byte> bytes) {
        std::memcpy(end, bytes.data(), bytes.size());
        end += bytes.size();
      });
      view.data = data;
    }
    views.push_back(std::move(view));
  }
  return gguf::File::assemble(name(), std::move(metadata), std::move(views), weights_.shards(),
                              std::move(owner));
}

}  // namespace quipu::convert
