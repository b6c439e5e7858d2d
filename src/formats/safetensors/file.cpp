// One safetensors file, or the shards of a folder as one.
#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>
#include <map>
#include <system_error>

#include "core/error.hpp"
#include "formats/safetensors/header.hpp"

namespace quipu::safetensors {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::array kTypes{
    Type{"F32", 4, DType::f32},       Type{"F16", 2, DType::f16},       Type{"BF16", 2, DType::bf16},
    Type{"F64", 8, DType::f64},       Type{"I8", 1, DType::i8},         Type{"I16", 2, DType::i16},
    Type{"I32", 4, DType::i32},       Type{"I64", 8, DType::i64},       Type{"U8", 1, std::nullopt},
    Type{"U16", 2, std::nullopt},     Type{"U32", 4, std::nullopt},     Type{"U64", 8, std::nullopt},
    Type{"BOOL", 1, std::nullopt},    Type{"F8_E4M3", 1, std::nullopt}, Type{"F8_E5M2", 1, std::nullopt},
    Type{"F8_E8M0", 1, std::nullopt}, Type{"C64", 8, std::nullopt},
};

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::size_t kLongestIndex = std::size_t{64} << 20;

std::string shown(const fs::path& path) { return printable(path.string(), 1000); }

/// A shard's name must stay inside the folder.
void check_shard_name(const std::string& name, const fs::path& index) {
  const bool plain = !name.empty() && name != "." && name != ".." && name.find_first_of("/\\") == name.npos &&
                     name.find('\0') == name.npos;
  if (!plain || !name.ends_with(".safetensors"))
    fail(ErrorCode::bad_file,
         "{}: the weight map names the shard \"{}\", expected the name of a .safetensors file in the same "
         "folder",
         shown(index), printable(name));
}

/// Tensor name -> shard, as the index says.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const MappedFile file(path, MappedFile::Mode::read);
  if (file.bytes().size() > kLongestIndex)
    fail(ErrorCode::bad_file, "{}: the index has {} bytes, expected at most {}", shown(path),
         file.bytes().size(), kLongestIndex);
  json::error_code error;
  const json::value root =
      json::parse({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, error);
  if (error) fail(ErrorCode::bad_file, "{}: not JSON: {}", shown(path), error.message());
  const json::object* object = root.if_object();
  const json::value* entry = object != nullptr ? object->if_contains("weight_map") : nullptr;
  const json::object* weights = entry != nullptr ? entry->if_object() : nullptr;
  if (weights == nullptr || weights->empty())
    fail(ErrorCode::bad_file, "{}: expected an object \"weight_map\" from tensors to shards", shown(path));
  std::map<std::string, std::string> result;
  for (const auto& [name, shard] : *weights) {
    if (!shard.is_string())
      fail(ErrorCode::bad_file, "{}: weight_map[\"{}\"] is no string, expected the name of a shard",
           shown(path), printable(std::string_view(name)));
    std::string file_name(shard.get_string());
    check_shard_name(file_name, path);
    result.emplace(std::string(name), std::move(file_name));
  }
  return result;
}

/// Why a folder has no weights that can be read: pickled ones, another format, or none.
[[noreturn]] void refuse_folder(const fs::path& folder) {
  std::vector<std::string> pickled, other;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const std::string kind = entry.path().extension().string();
    const bool is_weights =
        kind == ".pt" || kind == ".pth" || kind == ".ckpt" || (kind == ".bin" && name != "training_args.bin");
    if (is_weights) pickled.push_back(name);
    if (kind == ".gguf" || kind == ".safetensors" || kind == ".h5" || kind == ".msgpack")
      other.push_back(name);
  }
  std::sort(pickled.begin(), pickled.end());
  std::sort(other.begin(), other.end());
  if (!pickled.empty())
    fail(ErrorCode::unsupported,
         "{}: the weights are pickled ({}), which may run code when they are read; expected {} (save the "
         "model with safe_serialization=True)",
         shown(folder), printable(pickled.front()), kSingle);
  fail(ErrorCode::not_found, "{}: expected {} or {}, found {}", shown(folder), kSingle, kIndex,
       other.empty() ? "no weights" : "\"" + printable(other.front()) + "\"");
}

}  // namespace

const Type* find_type(std::string_view name) {
  const auto* found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const Type& type) { return type.name == name; });
  return found == kTypes.end() ? nullptr : found;
}

std::int64_t Tensor::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape) text += (text.size() > 1 ? ", " : "") + fmt::format("{}", extent);
  return text + "]";
}

File File::parse(std::span<const std::byte> bytes, std::string name) {
  Header header = parse_header(bytes, name);
  File file;
  file.name_ = name;
  file.names_ = {std::move(name)};
  file.tensors_ = std::move(header.tensors);
  file.metadata_ = std::move(header.metadata);
  std::sort(file.tensors_.begin(), file.tensors_.end(),
            [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  return file;
}

File File::open(const fs::path& path, MappedFile::Mode mode) {
  auto mapped = std::make_shared<MappedFile>(path, mode);
  File file = parse(mapped->bytes(), path.string());
  file.shards_.push_back(std::move(mapped));
  return file;
}

File File::open_folder(const fs::path& folder, MappedFile::Mode mode) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    fail(ErrorCode::not_found, "{} is no folder, expected one with {}", shown(folder), kSingle);
  const fs::path index = folder / kIndex;
  if (!fs::exists(index, error)) {
    if (!fs::exists(folder / kSingle, error)) refuse_folder(folder);
    File file = open(folder / kSingle, mode);
    file.name_ = folder.string();
    return file;
  }
  const std::map<std::string, std::string> weights = read_index(index);
  std::vector<std::string> shards;
  for (const auto& [name, shard] : weights) shards.push_back(shard);
  std::sort(shards.begin(), shards.end());
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());

  File file;
  file.name_ = folder.string();
  for (const std::string& shard : shards) {
    if (!fs::exists(folder / shard, error))
      fail(ErrorCode::not_found, "{}: the shard \"{}\" is missing", shown(index), printable(shard));
    File part = open(folder / shard, mode);
    for (Tensor& tensor : part.tensors_) {
      tensor.shard = static_cast<std::uint32_t>(file.names_.size());
      file.tensors_.push_back(std::move(tensor));
    }
    if (file.metadata_.empty()) file.metadata_ = std::move(part.metadata_);
    file.names_.push_back(std::move(part.names_.front()));
    file.shards_.push_back(std::move(part.shards_.front()));
  }
  std::sort(file.tensors_.begin(), file.tensors_.end(),
            [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < file.tensors_.size(); ++i)
    if (file.tensors_[i - 1].name == file.tensors_[i].name)
      fail(ErrorCode::bad_file, "{} and {} both hold tensor \"{}\"",
           printable(file.file_of(file.tensors_[i - 1]), 1000),
           printable(file.file_of(file.tensors_[i]), 1000), printable(file.tensors_[i].name));
  for (const auto& [name, shard] : weights) {
    const Tensor* tensor = file.find(name);
    if (tensor == nullptr || fs::path(file.file_of(*tensor)).filename() != shard)
      fail(
          ErrorCode::bad_file, "{}: tensor \"{}\" should be in \"{}\", found {}", shown(index),
          printable(name), printable(shard),
          tensor == nullptr ? std::string("in no shard") : "it in " + printable(file.file_of(*tensor), 1000));
  }
  return file;
}

const Tensor* File::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const Tensor& tensor, std::string_view n) { return tensor.name < n; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

}  // namespace quipu::safetensors
