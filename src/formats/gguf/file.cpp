// Opening files: one, or all shards of a split model.
#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "formats/gguf/gguf.hpp"
#include "formats/gguf/limits.hpp"
#include "formats/gguf/parse.hpp"
#include "formats/gguf/splits.hpp"

namespace quipu::gguf {
namespace {

std::string shown(const std::filesystem::path& path) { return printable(path.string(), 1000); }

struct Shard {
  std::filesystem::path path;
  std::shared_ptr<MappedFile> file;
  Container container;
};

Shard load(const std::filesystem::path& path, MappedFile::Mode mode) {
  Shard shard;
  shard.path = path;
  shard.file = std::make_shared<MappedFile>(path, mode);
  shard.container = parse_container(shard.file->bytes(), path.string());
  return shard;
}

/// A second GGUF header behind the data: files were joined with `cat`.
bool is_followed_by_gguf(const Shard& shard) {
  const std::span<const std::byte> bytes = shard.file->bytes();
  const std::uint64_t end = shard.container.data_end;
  for (const std::uint64_t at : {end, align_up(end, shard.container.alignment)}) {
    if (at > bytes.size() || bytes.size() - at < 4) continue;
    const auto* text = reinterpret_cast<const char*>(bytes.data() + at);
    if (std::string_view(text, 4) == "GGUF") return true;
  }
  return false;
}

/// The name of a shard's file, checked against its own split keys.
SplitName checked_name(const Shard& shard, std::uint64_t count) {
  const Metadata& metadata = shard.container.metadata;
  if (is_followed_by_gguf(shard))
    fail(ErrorCode::bad_file,
         "{}: shards of a split model ({} is {}) have been joined byte by byte, as with `cat`; keep the "
         "shards as "
         "they are and open the first, or join them with a tool for GGUF",
         shown(shard.path), kSplitCountKey, count);
  const std::uint64_t number = metadata.try_uint(kSplitNumberKey).value_or(0);
  if (number >= count)
    fail(ErrorCode::bad_file, "{}: key \"{}\" is {}, expected below {} ({})", shown(shard.path),
         kSplitNumberKey, number, count, kSplitCountKey);
  const std::optional<SplitName> name = parse_split_name(shard.path.filename().string());
  if (!name)
    fail(ErrorCode::bad_file,
         "{}: this is shard {} of {} of a split model, but its name is not like \"{}\", so that the others "
         "cannot "
         "be found",
         shown(shard.path), number + 1, count,
         split_file_name("NAME", static_cast<std::uint32_t>(number + 1), static_cast<std::uint32_t>(count)));
  if (name->count != count || name->number != number + 1)
    fail(ErrorCode::bad_file, "{}: its name says shard {} of {}, but its split keys say {} of {}",
         shown(shard.path), name->number, name->count, number + 1, count);
  return *name;
}

void require_all(const std::vector<std::filesystem::path>& paths, const Shard& opened) {
  std::size_t missing = 0;
  const std::filesystem::path* first = nullptr;
  for (const auto& path : paths) {
    std::error_code error;
    if (std::filesystem::exists(path, error)) continue;
    if (missing++ == 0) first = &path;
  }
  if (first == nullptr) return;
  const std::string others = missing > 1 ? fmt::format(" (and {} more)", missing - 1) : "";
  fail(ErrorCode::not_found, "{}: this model is split into {} files; \"{}\" is missing{}", shown(opened.path),
       paths.size(), shown(*first), others);
}

[[noreturn]] void fail_mixed(const Shard& a, const Shard& b, const std::string& difference) {
  fail(ErrorCode::bad_file, "{} and {}: not shards of one model: {}", shown(a.path),
       printable(b.path.filename().string()), difference);
}

std::string key_text(const Metadata& metadata, std::string_view key) {
  const Value* value = metadata.find(key);
  if (value == nullptr) return "absent";
  if (const auto* number = std::get_if<std::uint64_t>(&value->data)) return std::to_string(*number);
  if (const auto* number = std::get_if<std::int64_t>(&value->data)) return std::to_string(*number);
  if (const auto* text = std::get_if<std::string>(&value->data))
    return fmt::format("\"{}\"", printable(*text, 60));
  return "another value";
}

/// Whatever two shards both say of the model has to be equal.
void require_same_model(const Shard& first, const Shard& other, std::uint64_t count) {
  const Metadata& a = first.container.metadata;
  const Metadata& b = other.container.metadata;
  if (b.try_uint(kSplitCountKey) != count)
    fail_mixed(first, other,
               fmt::format("key \"{}\" is {} in the first, {} in the second", kSplitCountKey, count,
                           key_text(b, kSplitCountKey)));
  if (a.try_uint(kSplitTensorsKey) != b.try_uint(kSplitTensorsKey))
    fail_mixed(first, other,
               fmt::format("key \"{}\" is {} in the first, {} in the second", kSplitTensorsKey,
                           key_text(a, kSplitTensorsKey), key_text(b, kSplitTensorsKey)));
  for (const Metadata::Entry& entry : b.entries()) {
    if (entry.key.starts_with("split.") || entry.key == kAlignmentKey) continue;  // about the file
    const Value* value = a.find(entry.key);
    if (value != nullptr && *value != entry.value)
      fail_mixed(first, other,
                 fmt::format("key \"{}\" is {} in the first, {} in the second", printable(entry.key),
                             key_text(a, entry.key), key_text(b, entry.key)));
  }
}

/// All shards in order; `opened` is one of them.
std::vector<Shard> load_siblings(Shard opened, std::uint64_t count, MappedFile::Mode mode) {
  const SplitName name = checked_name(opened, count);
  std::vector<std::filesystem::path> paths;
  for (std::uint32_t i = 1; i <= count; ++i)
    paths.push_back(opened.path.parent_path() /
                    split_file_name(name.stem, i, static_cast<std::uint32_t>(count)));
  require_all(paths, opened);
  std::vector<Shard> shards;
  for (std::uint32_t i = 1; i <= count; ++i) {
    if (i == name.number) {
      shards.push_back(std::move(opened));
    } else {
      shards.push_back(load(paths[i - 1], mode));
    }
    if (i > 1) require_same_model(shards.front(), shards.back(), count);
    if (i != name.number) checked_name(shards.back(), count);
  }
  return shards;
}

}  // namespace

std::optional<SplitName> parse_split_name(std::string_view file_name) {
  constexpr std::string_view pattern = "-00001-of-00001.gguf";
  if (file_name.size() <= pattern.size()) return std::nullopt;
  const std::string_view tail = file_name.substr(file_name.size() - pattern.size());
  std::uint32_t numbers[2] = {0, 0};
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const bool is_digit = pattern[i] == '0' || pattern[i] == '1';
    if (!is_digit && tail[i] != pattern[i]) return std::nullopt;
    if (!is_digit) continue;
    if (tail[i] < '0' || tail[i] > '9') return std::nullopt;
    std::uint32_t& number = numbers[i > 6 ? 1 : 0];
    number = number * 10 + static_cast<std::uint32_t>(tail[i] - '0');
  }
  if (numbers[0] < 1 || numbers[0] > numbers[1]) return std::nullopt;
  return SplitName{std::string(file_name.substr(0, file_name.size() - pattern.size())), numbers[0],
                   numbers[1]};
}

std::string split_file_name(std::string_view stem, std::uint32_t number, std::uint32_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, number, count);
}

File File::parse(std::span<const std::byte> bytes, std::string name) {
  Container container = parse_container(bytes, name);
  File file;
  file.name_ = std::move(name);
  file.version_ = container.version;
  file.metadata_ = std::move(container.metadata);
  file.tensors_ = std::move(container.tensors);
  file.by_name_ = std::move(container.by_name);
  file.bytes_ = bytes.size();
  return file;
}

File File::assemble(std::string name, Metadata metadata, std::vector<TensorView> tensors,
                    std::vector<std::shared_ptr<MappedFile>> mapped, std::shared_ptr<const void> owner) {
  File file;
  file.name_ = std::move(name);
  file.version_ = 3;
  file.metadata_ = std::move(metadata);
  file.tensors_ = std::move(tensors);
  file.shards_ = std::move(mapped);
  file.owner_ = std::move(owner);
  for (const TensorView& tensor : file.tensors_) file.bytes_ += tensor.bytes();
  file.by_name_.resize(file.tensors_.size());
  std::iota(file.by_name_.begin(), file.by_name_.end(), std::size_t{0});
  std::sort(file.by_name_.begin(), file.by_name_.end(),
            [&](std::size_t a, std::size_t b) { return file.tensors_[a].name < file.tensors_[b].name; });
  for (std::size_t i = 1; i < file.by_name_.size(); ++i)
    if (file.tensors_[file.by_name_[i - 1]].name == file.tensors_[file.by_name_[i]].name)
      fail(ErrorCode::bad_file, "{}: tensor \"{}\" occurs twice", printable(file.name_, 1000),
           printable(file.tensors_[file.by_name_[i]].name));
  return file;
}

File File::open(const std::filesystem::path& path, const OpenOptions& options) {
  Shard opened = load(path, options.mode);
  std::vector<Shard> shards;
  const std::uint64_t count =
      options.follow_splits ? opened.container.metadata.try_uint(kSplitCountKey).value_or(1) : 1;
  if (count > UINT16_MAX)
    fail(ErrorCode::bad_file, "{}: key \"{}\" is {}, expected at most {}", shown(path), kSplitCountKey, count,
         UINT16_MAX);
  if (count > 1) {
    shards = load_siblings(std::move(opened), count, options.mode);
  } else {
    // 0 is what a merged file carries.
    shards.push_back(std::move(opened));
  }

  File file;
  file.name_ = path.string();
  file.version_ = shards.front().container.version;
  file.metadata_ = std::move(shards.front().container.metadata);
  std::vector<std::size_t> shard_of;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    file.bytes_ += shards[i].file->bytes().size();
    file.shards_.push_back(shards[i].file);
    for (TensorView& tensor : shards[i].container.tensors) {
      file.tensors_.push_back(std::move(tensor));
      shard_of.push_back(i);
    }
  }
  if (shards.size() == 1) {
    file.by_name_ = std::move(shards.front().container.by_name);
    return file;
  }

  file.by_name_.resize(file.tensors_.size());
  std::iota(file.by_name_.begin(), file.by_name_.end(), std::size_t{0});
  std::sort(file.by_name_.begin(), file.by_name_.end(), [&](std::size_t a, std::size_t b) {
    const int order = file.tensors_[a].name.compare(file.tensors_[b].name);
    return order != 0 ? order < 0 : a < b;
  });
  for (std::size_t i = 1; i < file.by_name_.size(); ++i) {
    const std::size_t a = file.by_name_[i - 1], b = file.by_name_[i];
    if (file.tensors_[a].name == file.tensors_[b].name)
      fail_mixed(shards[shard_of[a]], shards[shard_of[b]],
                 fmt::format("both hold tensor \"{}\"", printable(file.tensors_[a].name)));
  }
  const auto expected = file.metadata_.try_uint(kSplitTensorsKey);
  if (expected && *expected != file.tensors_.size())
    fail(ErrorCode::bad_file,
         "{}: key \"{}\" is {}, but the {} shards hold {} tensors: not shards of one model",
         shown(shards.front().path), kSplitTensorsKey, *expected, shards.size(), file.tensors_.size());
  return file;
}

const TensorView* File::find_tensor(std::string_view name) const {
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](std::size_t i, std::string_view n) { return tensors_[i].name < n; });
  return found != by_name_.end() && tensors_[*found].name == name ? &tensors_[*found] : nullptr;
}

}  // namespace quipu::gguf
