#include "convert/peft.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <system_error>

#include "convert/family.hpp"
#include "core/error.hpp"
#include "core/near_matches.hpp"

namespace quipu::convert {
namespace {

namespace fs = std::filesystem;
using safetensors::Tensor;

/// A PEFT file's names are those of the wrapped model.
constexpr std::string_view kWrapper = "base_model.model.";

struct Suffix {
  std::string_view text;
  bool is_a, is_embedding;
};
constexpr Suffix kSuffixes[] = {{".lora_A.weight", true, false},
                                {".lora_B.weight", false, false},
                                {".lora_embedding_A", true, true},
                                {".lora_embedding_B", false, true}};

/// Where a module's product goes: a weight of the GGUF file, and the order of its rows.
struct Place {
  std::string weight;
  std::vector<std::int64_t> (*rows)(const Sizes&) = nullptr;
};

/// The sizes that orders of rows depend on, from a GGUF file's settings.
Sizes sizes_of(const gguf::File& model) {
  const gguf::Metadata& metadata = model.metadata();
  const std::string& architecture = metadata.get_string("general.architecture");
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", architecture, name); };
  // Beyond this no model exists, and products stay small.
  const auto size = [&](std::string_view name, std::uint64_t fallback) {
    const gguf::Value* value = metadata.find(key(name));
    const bool is_array = value != nullptr && value->type == gguf::ValueType::array;
    const std::uint64_t found = is_array ? fallback : metadata.try_uint(key(name)).value_or(fallback);
    if (found > std::uint64_t{1} << 24)
      fail(ErrorCode::bad_file, "{}: {} is {}, expected at most {}", printable(model.name(), 1000), key(name),
           found, std::uint64_t{1} << 24);
    return static_cast<std::int64_t>(found);
  };
  Sizes s;
  s.set(Dim::one, 1);
  s.set(Dim::layers, size("block_count", 0));
  s.set(Dim::width, size("embedding_length", 0));
  const std::int64_t heads = std::max<std::int64_t>(1, size("attention.head_count", 1));
  const std::int64_t kv_heads =
      std::max<std::int64_t>(1, size("attention.head_count_kv", static_cast<std::uint64_t>(heads)));
  const std::int64_t dim = size("attention.key_length", static_cast<std::uint64_t>(s[Dim::width] / heads));
  s.set_heads(heads, kv_heads, dim);
  s.set(Dim::ff, size("feed_forward_length", 0));
  s.set(Dim::ff2, 2 * s[Dim::ff]);
  s.set(Dim::shared_ff, size("expert_shared_feed_forward_length", 0));
  return s;
}

std::string in_block(std::string_view text, std::int64_t block) {
  std::string name(text);
  if (const std::size_t at = name.find("{}"); at != name.npos) name.replace(at, 2, std::to_string(block));
  return name;
}

/// Every module of the family that is one matrix, by its name in the checkpoint without the root.
std::map<std::string, std::vector<Place>, std::less<>> places_of(const gguf::File& model,
                                                                 const Sizes& sizes) {
  const std::string& architecture = model.metadata().get_string("general.architecture");
  std::map<std::string, std::vector<Place>, std::less<>> places;
  for (const Family& family : families()) {
    if (family.name != architecture) continue;
    for (const TensorRule& rule : family.tensors) {
      const bool joined = rule.from.find("{e}") != rule.from.npos ||
                          rule.from.find("{h}") != rule.from.npos || rule.from.find("{g}") != rule.from.npos;
      if (joined || rule.to.ends_with(".weight") || rule.to.ends_with(".bias")) continue;
      const bool of_block = rule.from.find("{}") != rule.from.npos;
      for (std::int64_t block = 0; block < (of_block ? sizes[Dim::layers] : 1); ++block) {
        std::string from = in_block(rule.from, block);
        if (from.starts_with("/")) from.erase(0, 1);
        const std::string to = in_block(rule.to, block) + ".weight";
        std::vector<Place>& list = places[from];
        const bool known =
            std::any_of(list.begin(), list.end(), [&](const Place& place) { return place.weight == to; });
        if (!known && (model.find_tensor(to) != nullptr || to == "output.weight"))
          list.push_back({to, rule.change.rows});
      }
    }
  }
  if (places.empty())
    fail(ErrorCode::unsupported,
         "{}: names of PEFT adapters are not known for architecture {}; a GGUF adapter works",
         printable(model.name(), 1000), printable(architecture));
  return places;
}

/// The prefixes of the model's family, below the wrapper.
std::string_view without_root(std::string_view name, std::string_view architecture) {
  for (const Family& family : families()) {
    if (family.name != architecture) continue;
    std::string_view best = name;
    for_each_alternative(family.roots, [&](std::string_view root) {
      if (name.starts_with(root) && name.size() - root.size() < best.size()) best = name.substr(root.size());
    });
    return best;
  }
  return name;
}

class PeftReader {
 public:
  PeftReader(const JsonFile& config, const safetensors::File& tensors, const gguf::File& model)
      : config_(config), tensors_(tensors), model_(model), sizes_(sizes_of(model)) {}

  gguf::File run() {
    check_config();
    places_ = places_of(model_, sizes_);
    const std::string& architecture = model_.metadata().get_string("general.architecture");
    for (const Tensor& tensor : tensors_.tensors()) add(tensor, architecture);
    gguf::Metadata metadata;
    metadata.set_origin(tensors_.name());
    metadata.set("general.type", gguf::Value::of_string("adapter"));
    metadata.set("general.architecture", gguf::Value::of_string(architecture));
    metadata.set("adapter.type", gguf::Value::of_string("lora"));
    metadata.set("adapter.lora.alpha", gguf::Value::of_f32(static_cast<float>(alpha_)));
    return gguf::File::assemble(tensors_.name(), std::move(metadata), std::move(views_), {}, owner_);
  }

 private:
  struct Owner {
    std::vector<std::unique_ptr<std::byte[]>> blocks;
  };

  std::string where(const Tensor& tensor) const {
    return printable(tensors_.file_of(tensor), 1000) + ": tensor \"" + printable(tensor.name) + "\"";
  }

  void check_config() {
    const auto refuse = [&](std::string_view key, std::string_view what) {
      fail(ErrorCode::unsupported, "{}: \"{}\" {}, expected a plain LoRA", printable(config_.name(), 1000),
           key, what);
    };
    if (const auto type = config_.try_text("peft_type"); type && *type != "LORA")
      refuse("peft_type", "is " + printable(*type));
    if (config_.flag_or("use_dora", false)) refuse("use_dora", "is true (DoRA)");
    if (config_.has("alora_invocation_tokens")) refuse("alora_invocation_tokens", "is set (aLoRA)");
    if (config_.flag_or("lora_bias", false)) refuse("lora_bias", "is true");
    if (const auto bias = config_.try_text("bias"); bias && *bias != "none")
      refuse("bias", "is " + printable(*bias) + " (trained biases)");
    rank_ = config_.count("r");
    alpha_ = config_.try_number("lora_alpha").value_or(8);
    rslora_ = config_.flag_or("use_rslora", false);
    if (rank_ == 0) config_.reject("r", "0", "at least 1");
    if (rslora_) alpha_ *= std::sqrt(static_cast<double>(rank_));
  }

  /// What PEFT scales a module by. A pattern is the whole name or its end behind a dot; regular expressions
  /// are refused.
  double alpha_of(const std::string& module, std::uint64_t rank) const {
    double alpha = config_.try_number("lora_alpha").value_or(8);
    if (const auto* patterns = config_.find("alpha_pattern"); patterns != nullptr && patterns->is_object())
      for (const auto& [key, value] : patterns->get_object()) {
        const std::string_view pattern = key;
        if (pattern.find_first_of("^$*+?()[]{}|\\") != pattern.npos)
          config_.reject("alpha_pattern", "\"" + printable(pattern) + "\"", "names without wildcards");
        const bool fits = module == pattern || (module.size() > pattern.size() && module.ends_with(pattern) &&
                                                module[module.size() - pattern.size() - 1] == '.');
        if (fits && value.is_number()) alpha = value.to_number<double>();
      }
    return rslora_ ? alpha * std::sqrt(static_cast<double>(rank)) : alpha;
  }

  void add(const Tensor& tensor, std::string_view architecture) {
    std::string_view name = tensor.name;
    const Suffix* suffix = nullptr;
    for (const Suffix& candidate : kSuffixes)
      if (name.ends_with(candidate.text)) suffix = &candidate;
    if (suffix == nullptr || !name.starts_with(kWrapper))
      fail(ErrorCode::unsupported,
           "{} is no low-rank product, expected {}….lora_A.weight and .lora_B.weight (whole layers are not "
           "supported)",
           where(tensor), kWrapper);
    name.remove_suffix(suffix->text.size());
    name.remove_prefix(kWrapper.size());
    const std::string module(without_root(name, architecture));
    const auto found = places_.find(module);
    if (found == places_.end() || found->second.empty()) {
      std::vector<std::string_view> names;
      for (const auto& [known, list] : places_) names.push_back(known);
      const auto near = near_matches(module, names);
      fail(ErrorCode::bad_file, "{} changes module {}, which the model has not{}", where(tensor),
           printable(module), near.empty() ? "" : fmt::format(" (near it: {})", fmt::join(near, ", ")));
    }
    check(tensor);
    for (const Place& place : found->second) add(tensor, *suffix, module, place);
  }

  void check(const Tensor& tensor) const {
    if (tensor.shape.size() != 2 || tensor.shape[0] < 1 || tensor.shape[1] < 1)
      fail(ErrorCode::bad_file, "{} is {}, expected a matrix", where(tensor),
           safetensors::shape_text(tensor.shape));
    const bool is_float = tensor.type->dtype && !info(*tensor.type->dtype).is_integer;
    if (!is_float || info(*tensor.type->dtype).decode == nullptr)
      fail(ErrorCode::unsupported, "{} is {}, expected F32, F16 or BF16", where(tensor), tensor.type->name);
  }

  void add(const Tensor& tensor, const Suffix& suffix, const std::string& module, const Place& place) {
    const std::int64_t rows = tensor.shape[0], width = tensor.shape[1];
    TensorView view;
    view.name = place.weight + (suffix.is_a ? ".lora_a" : ".lora_b");
    view.dtype = *tensor.type->dtype;
    view.shape = {width, rows, 1, 1};
    view.data = tensor.bytes.data();
    if (suffix.is_a && suffix.is_embedding) {
      view = turned(view);
    } else if (suffix.is_a || suffix.is_embedding) {
      view = moved(view, {});
    } else {
      std::vector<std::int64_t> order;
      if (place.rows != nullptr) order = place.rows(sizes_);
      for (const std::int64_t row : order)
        if (row < 0 || row >= rows)
          fail(ErrorCode::bad_file, "{} is {}, expected {} rows for the heads of the model", where(tensor),
               safetensors::shape_text(tensor.shape), order.size());
      view = moved(view, order);
    }
    // The file has one alpha: what differs from it goes into B.
    const auto rank = static_cast<std::uint64_t>(suffix.is_a ? rows : width);
    const double factor = suffix.is_a ? 1 : alpha_of(module, rank) / alpha_;
    if (!std::isfinite(factor))
      fail(ErrorCode::bad_file, "{}: \"lora_alpha\" is {}, which gives no factor for {}",
           printable(config_.name(), 1000), alpha_, printable(module));
    if (factor != 1) view = scaled(view, static_cast<float>(factor));
    views_.push_back(std::move(view));
  }

  std::byte* take(std::size_t bytes) {
    owner_->blocks.push_back(std::make_unique<std::byte[]>(bytes));
    return owner_->blocks.back().get();
  }

  /// A copy with rows in this order; empty: as they are.
  TensorView moved(TensorView view, const std::vector<std::int64_t>& order) {
    const std::size_t row = view.row_bytes();
    const std::byte* from = view.data;
    if (!order.empty()) view.shape[1] = static_cast<std::int64_t>(order.size());
    std::byte* to = take(view.bytes());
    for (std::size_t i = 0; i < static_cast<std::size_t>(view.rows()); ++i)
      std::memcpy(to + i * row, from + (order.empty() ? i : static_cast<std::size_t>(order[i])) * row, row);
    view.data = to;
    return view;
  }

  TensorView turned(TensorView view) {
    const std::size_t element = info(view.dtype).block_bytes;
    const auto width = static_cast<std::size_t>(view.shape[0]),
               rows = static_cast<std::size_t>(view.shape[1]);
    std::byte* to = take(view.bytes());
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < width; ++c)
        std::memcpy(to + (c * rows + r) * element, view.data + (r * width + c) * element, element);
    std::swap(view.shape[0], view.shape[1]);
    view.data = to;
    return view;
  }

  TensorView scaled(TensorView view, float factor) {
    const auto count = static_cast<std::size_t>(view.elements());
    auto* values = reinterpret_cast<float*>(take(count * sizeof(float)));
    info(view.dtype).decode(view.data, values, count);
    for (std::size_t i = 0; i < count; ++i) values[i] *= factor;
    view.dtype = DType::f32;
    view.data = reinterpret_cast<const std::byte*>(values);
    return view;
  }

  const JsonFile& config_;
  const safetensors::File& tensors_;
  const gguf::File& model_;
  Sizes sizes_;
  std::map<std::string, std::vector<Place>, std::less<>> places_;
  std::uint64_t rank_ = 0;
  double alpha_ = 0;
  bool rslora_ = false;
  std::vector<TensorView> views_;
  std::shared_ptr<Owner> owner_ = std::make_shared<Owner>();
};

}  // namespace

gguf::File read_peft(const JsonFile& config, const safetensors::File& tensors, const gguf::File& model) {
  return PeftReader(config, tensors, model).run();
}

gguf::File open_adapter(const fs::path& path, const gguf::File& model) {
  std::error_code error;
  fs::path folder = path;
  if (!fs::is_directory(path, error)) {
    if (path.extension() != ".safetensors") return gguf::File::open(path);
    folder = path.parent_path();
  }
  if (!fs::exists(folder / "adapter_config.json", error))
    fail(ErrorCode::not_found,
         "{} has no adapter_config.json, expected a GGUF adapter or a folder that PEFT saved",
         printable(folder.string(), 1000));
  if (!fs::exists(folder / "adapter_model.safetensors", error) &&
      fs::exists(folder / "adapter_model.bin", error))
    fail(ErrorCode::unsupported,
         "{}: the weights are pickled (adapter_model.bin), expected adapter_model.safetensors",
         printable(folder.string(), 1000));
  return read_peft(JsonFile::open(folder / "adapter_config.json"),
                   safetensors::File::open(folder / "adapter_model.safetensors"), model);
}

}  // namespace quipu::convert
