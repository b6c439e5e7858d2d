// GGUF versions 2 and 3: reader and writer. Source: the GGUF description in the ggml repository
// (docs/gguf.md).
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/mapped_file.hpp"
#include "core/text_list.hpp"
#include "tensor/tensor.hpp"

namespace quipu::gguf {

/// Value type numbers of the format.
enum class ValueType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
std::string_view to_string(ValueType type);

/// A metadata array. Numbers of any type are kept widened: unsigned and boolean as u64, signed as i64, floats
/// as f64.
struct Array {
  ValueType element_type = ValueType::u8;
  std::variant<std::vector<std::uint64_t>, std::vector<std::int64_t>, std::vector<double>, TextList,
               std::vector<Array>>
      items;
  std::size_t size() const;
  bool operator==(const Array& other) const;
};

struct Value {
  ValueType type = ValueType::u8;
  std::variant<std::uint64_t, std::int64_t, double, bool, std::string, Array> data;
  bool operator==(const Value& other) const;

  // The usual types of metadata, for writing.
  static Value of_u32(std::uint32_t value) { return {ValueType::u32, std::uint64_t{value}}; }
  static Value of_f32(float value) { return {ValueType::f32, double{value}}; }
  static Value of_bool(bool value) { return {ValueType::boolean, value}; }
  static Value of_string(std::string value) { return {ValueType::string, std::move(value)}; }
  static Value of_strings(const std::vector<std::string>& values) {
    return {ValueType::array, Array{ValueType::string, TextList(values)}};
  }
};

/// Metadata in file order, with typed access. Every getter throws `Error` that names the file, the key, the
/// type found and the type expected.
class Metadata {
 public:
  struct Entry {
    std::string key;
    Value value;
  };
  const std::vector<Entry>& entries() const { return entries_; }
  const Value* find(std::string_view key) const;

  /// Required: (bad_file) "missing key" when absent. Any integer type that holds a value >= 0 in range is
  /// accepted.
  std::uint64_t get_uint(std::string_view key) const;
  std::int64_t get_int(std::string_view key) const;
  double get_float(std::string_view key) const;  ///< f32 or f64
  bool get_bool(std::string_view key) const;
  const std::string& get_string(std::string_view key) const;
  const Array& get_array(std::string_view key) const;

  /// Optional: nullopt when the key is absent; still an error when it is there with the wrong type.
  std::optional<std::uint64_t> try_uint(std::string_view key) const;
  std::optional<double> try_float(std::string_view key) const;
  std::optional<bool> try_bool(std::string_view key) const;
  std::optional<std::string> try_string(std::string_view key) const;
  const Array* try_array(std::string_view key) const;
  /// Arrays with a required element kind: strings, floats (f32/f64), integers (any width, signed).
  const TextList* try_strings(std::string_view key) const;
  std::optional<std::vector<float>> try_floats(std::string_view key) const;
  std::optional<std::vector<std::int64_t>> try_ints(std::string_view key) const;

  /// Adds at the end, or replaces where it stands.
  void set(std::string key, Value value);
  /// Adds at the end; false, and nothing changed, when the key is there already.
  bool add(std::string key, Value value);
  /// Takes a key out; the others keep their order. False when it is not there.
  bool erase(std::string_view key);
  void set_origin(std::string file) { origin_ = std::move(file); }
  const std::string& origin() const { return origin_; }  ///< file name for messages

 private:
  std::string origin_;
  std::vector<Entry> entries_;
  std::map<std::string, std::size_t, std::less<>> index_;  ///< key -> position in entries_
};

struct OpenOptions {
  MappedFile::Mode mode = MappedFile::Mode::map;
  /// Open the sibling shards of a split file (`-00001-of-0000N.gguf`). False reads this one file's container
  /// only.
  bool follow_splits = true;
};

/// An open GGUF file (or all shards of a split one): metadata of the first shard, tensors of all. Views point
/// into the mapped bytes and live as long as the object. Nothing outside a file's bytes is ever read. A file
/// that another program shortens while it is mapped ends this one by SIGBUS; `Mode::read` does not depend on
/// it. What is refused and the limits: docs/gguf.md.
class File {
 public:
  /// Throws `Error`: not_found/io for the path, bad_file for contents (with offset, key or tensor name),
  /// unsupported for versions and byte orders quipu does not read.
  static File open(const std::filesystem::path& path, const OpenOptions& options = {});
  /// Parses bytes in memory (tests, fuzzing). `name` is used in messages. The bytes must outlive the result.
  static File parse(std::span<const std::byte> bytes, std::string name);
  /// A file that lies in no one file: tensors wherever they are. `mapped` and `owner` keep their bytes alive.
  /// Throws `Error` (bad_file) for a name that occurs twice.
  static File assemble(std::string name, Metadata metadata, std::vector<TensorView> tensors,
                       std::vector<std::shared_ptr<MappedFile>> mapped, std::shared_ptr<const void> owner);

  std::uint32_t version() const { return version_; }
  const std::string& name() const { return name_; }
  const Metadata& metadata() const { return metadata_; }
  /// Frees the memory of a value that nobody will ask for any more.
  void forget(std::string_view key) { metadata_.erase(key); }
  const std::vector<TensorView>& tensors() const { return tensors_; }
  const TensorView* find_tensor(std::string_view name) const;
  std::uint64_t file_bytes() const { return bytes_; }  ///< of all shards
  /// Mapped shards, for prefetch and locking.
  const std::vector<std::shared_ptr<MappedFile>>& shards() const { return shards_; }

 private:
  std::string name_;
  std::uint32_t version_ = 0;
  std::uint64_t bytes_ = 0;
  Metadata metadata_;
  std::vector<TensorView> tensors_;
  std::vector<std::size_t> by_name_;  ///< indices into tensors_, sorted by name
  std::vector<std::shared_ptr<MappedFile>> shards_;
  std::shared_ptr<const void> owner_;  ///< of bytes in no shard
};

/// What `Writer` is told of a tensor before its bytes come.
struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  std::array<std::int64_t, 4> shape{1, 1, 1, 1};  ///< in GGUF order, as in TensorView
};

/// Writes a GGUF v3 file tensor by tensor; the file appears whole, at `finish`, or not at all. Tensor order
/// and metadata order are kept. Accepts only what `File` reads back; throws `Error`: invalid_argument (names
/// the key or tensor), io.
class Writer {
 public:
  /// `alignment` must be a power of two >= 8; written as general.alignment when it is not 32 (a key of that
  /// name in `metadata` is brought into line with it).
  Writer(const std::filesystem::path& path, const Metadata& metadata, std::vector<TensorInfo> tensors,
         std::uint32_t alignment = 32);
  ~Writer();
  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) = delete;

  /// The next tensor's bytes, all of them, or a part of them: parts are joined until the tensor is full.
  void append(std::span<const std::byte> bytes);
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Writes a whole file through `Writer`.
void write(const std::filesystem::path& path, const Metadata& metadata, std::span<const TensorView> tensors,
           std::uint32_t alignment = 32);

}  // namespace quipu::gguf
