// Writing GGUF version 3.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "core/atomic_file.hpp"
#include "core/error.hpp"
#include "formats/gguf/gguf.hpp"
#include "formats/gguf/limits.hpp"

namespace quipu::gguf {
namespace {

[[noreturn]] void refuse_key(std::string_view key, std::string_view message) {
  fail(ErrorCode::invalid_argument, "cannot write key \"{}\": {}", printable(key), message);
}
[[noreturn]] void refuse_tensor(std::string_view name, std::string_view message) {
  fail(ErrorCode::invalid_argument, "cannot write tensor \"{}\": {}", printable(name), message);
}

/// The bytes before the tensor data.
class HeaderWriter {
 public:
  template <class T>
  void number(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  void string(std::string_view text) {
    number(std::uint64_t{text.size()});
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), bytes, bytes + text.size());
  }

  void entry(const Metadata::Entry& entry) {
    key_ = entry.key;
    if (key_.empty() || key_.size() > kLongestKey)
      refuse_key(key_, fmt::format("it is {} bytes long, expected 1 to {}", key_.size(), kLongestKey));
    if (!is_plain_text(key_)) refuse_key(key_, "it holds control characters or is not UTF-8, expected text");
    string(key_);
    number(static_cast<std::uint32_t>(entry.value.type));
    value(entry.value);
  }

  void pad(std::uint64_t alignment) { bytes_.resize(align_up(bytes_.size(), alignment)); }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  template <class T>
  const T& held(const Value& value) const {
    if (const T* found = std::get_if<T>(&value.data)) return *found;
    refuse_key(key_, fmt::format("its value does not match its type {}", to_string(value.type)));
  }
  template <class T,
            class List = std::conditional_t<std::is_same_v<T, std::string_view>, TextList, std::vector<T>>>
  const List& held(const Array& array) const {
    if (const auto* found = std::get_if<List>(&array.items)) return *found;
    refuse_key(key_, fmt::format("its elements do not match their type {}", to_string(array.element_type)));
  }

  /// Stores an integer in fewer bits, or refuses.
  template <class Stored, class Kept>
  void narrowed(Kept value) {
    if (value < Kept{std::numeric_limits<Stored>::min()} || value > Kept{std::numeric_limits<Stored>::max()})
      refuse_key(key_, fmt::format("{} does not fit {} bits", value, 8 * sizeof(Stored)));
    number(static_cast<Stored>(value));
  }
  void narrowed_float(double value) {
    if (std::isfinite(value) && std::fabs(value) > double{std::numeric_limits<float>::max()})
      refuse_key(key_, fmt::format("{} does not fit f32", value));
    number(static_cast<float>(value));
  }

  template <class Stored, class Kept>
  void narrowed_all(const Array& array) {
    for (const Kept value : held<Kept>(array)) narrowed<Stored, Kept>(value);
  }

  void value(const Value& v) {
    switch (v.type) {
      case ValueType::u8:
        return narrowed<std::uint8_t>(held<std::uint64_t>(v));
      case ValueType::u16:
        return narrowed<std::uint16_t>(held<std::uint64_t>(v));
      case ValueType::u32:
        return narrowed<std::uint32_t>(held<std::uint64_t>(v));
      case ValueType::u64:
        return number(held<std::uint64_t>(v));
      case ValueType::i8:
        return narrowed<std::int8_t>(held<std::int64_t>(v));
      case ValueType::i16:
        return narrowed<std::int16_t>(held<std::int64_t>(v));
      case ValueType::i32:
        return narrowed<std::int32_t>(held<std::int64_t>(v));
      case ValueType::i64:
        return number(held<std::int64_t>(v));
      case ValueType::f32:
        return narrowed_float(held<double>(v));
      case ValueType::f64:
        return number(held<double>(v));
      case ValueType::boolean:
        return number(static_cast<std::uint8_t>(held<bool>(v) ? 1 : 0));
      case ValueType::string:
        return string(held<std::string>(v));
      case ValueType::array:
        return array(held<Array>(v), 1);
    }
    refuse_key(key_, "its type is none of the format");
  }

  void array(const Array& a, int depth) {
    number(static_cast<std::uint32_t>(a.element_type));
    number(std::uint64_t{a.size()});
    elements_ += a.size();
    if (elements_ > kMostElements)
      refuse_key(key_, fmt::format("the metadata has {} array elements, expected at most {}", elements_,
                                   kMostElements));
    switch (a.element_type) {
      case ValueType::u8:
        return narrowed_all<std::uint8_t, std::uint64_t>(a);
      case ValueType::u16:
        return narrowed_all<std::uint16_t, std::uint64_t>(a);
      case ValueType::u32:
        return narrowed_all<std::uint32_t, std::uint64_t>(a);
      case ValueType::u64:
        return narrowed_all<std::uint64_t, std::uint64_t>(a);
      case ValueType::i8:
        return narrowed_all<std::int8_t, std::int64_t>(a);
      case ValueType::i16:
        return narrowed_all<std::int16_t, std::int64_t>(a);
      case ValueType::i32:
        return narrowed_all<std::int32_t, std::int64_t>(a);
      case ValueType::i64:
        return narrowed_all<std::int64_t, std::int64_t>(a);
      case ValueType::f32:
        for (const double item : held<double>(a)) narrowed_float(item);
        return;
      case ValueType::f64:
        for (const double item : held<double>(a)) number(item);
        return;
      case ValueType::boolean:
        for (const std::uint64_t item : held<std::uint64_t>(a)) {
          if (item > 1) refuse_key(key_, fmt::format("the bool {} is not 0 or 1", item));
          number(static_cast<std::uint8_t>(item));
        }
        return;
      case ValueType::string:
        for (const std::string_view item : held<std::string_view>(a)) string(item);
        return;
      case ValueType::array:
        if (depth == kDeepestArray)
          refuse_key(key_, fmt::format("its arrays are nested deeper than {}", kDeepestArray));
        for (const Array& item : held<Array>(a)) array(item, depth + 1);
        return;
    }
    refuse_key(key_, "its element type is none of the format");
  }

  std::vector<std::byte> bytes_;
  std::string_view key_;
  std::uint64_t elements_ = 0;
};

/// The metadata as it is written: general.alignment in line with the alignment in use.
Metadata with_alignment(const Metadata& metadata, std::uint32_t alignment) {
  Metadata result = metadata;
  if (alignment != kDefaultAlignment || metadata.find(kAlignmentKey) != nullptr)
    result.set(kAlignmentKey, Value::of_u32(alignment));
  return result;
}

std::uint32_t dimensions_of(const TensorInfo& tensor) {
  std::uint32_t dimensions = kMostDimensions;
  while (dimensions > 1 && tensor.shape[dimensions - 1] == 1) --dimensions;
  return dimensions;
}

std::uint64_t checked_bytes(const TensorInfo& tensor) {
  if (tensor.name.empty() || tensor.name.size() > kLongestTensorName)
    refuse_tensor(tensor.name, fmt::format("its name is {} bytes long, expected 1 to {}", tensor.name.size(),
                                           kLongestTensorName));
  std::int64_t elements = 1;
  for (const std::int64_t size : tensor.shape)
    if (size < 1 || __builtin_mul_overflow(elements, size, &elements))
      refuse_tensor(tensor.name, "its dimensions must be 1 or more, with a product below 2^63");
  const DTypeInfo& dtype = info(tensor.dtype);
  if (tensor.shape[0] % dtype.block_size != 0)
    refuse_tensor(tensor.name, fmt::format("its rows of {} do not fit {}, expected a multiple of {}",
                                           tensor.shape[0], dtype.name, dtype.block_size));
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / dtype.block_size, std::int64_t{dtype.block_bytes}, &bytes))
    refuse_tensor(tensor.name, "it takes more than 2^63 - 1 bytes");
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace

struct Writer::State {
  AtomicFileWriter file;
  std::vector<TensorInfo> tensors;
  std::vector<std::uint64_t> bytes;  // of each tensor
  std::uint64_t alignment;
  std::size_t current = 0;    // tensor being written
  std::uint64_t written = 0;  // of its bytes
};

Writer::Writer(const std::filesystem::path& path, const Metadata& metadata, std::vector<TensorInfo> tensors,
               std::uint32_t alignment) {
  if (!is_usable_alignment(alignment))
    fail(ErrorCode::invalid_argument,
         "the alignment of a GGUF file is {}, expected a power of two of at least {}", alignment,
         kLeastAlignment);
  const Metadata written = with_alignment(metadata, alignment);
  HeaderWriter header;
  header.number(kMagic);
  header.number(std::uint32_t{3});
  header.number(std::uint64_t{tensors.size()});
  header.number(std::uint64_t{written.entries().size()});
  for (const Metadata::Entry& entry : written.entries()) header.entry(entry);

  std::vector<std::uint64_t> sizes;
  std::set<std::string_view> names;
  std::uint64_t offset = 0;
  for (const TensorInfo& tensor : tensors) {
    sizes.push_back(checked_bytes(tensor));
    if (!names.insert(tensor.name).second) refuse_tensor(tensor.name, "its name occurs twice");
    header.string(tensor.name);
    const std::uint32_t dimensions = dimensions_of(tensor);
    header.number(dimensions);
    for (std::uint32_t i = 0; i < dimensions; ++i) header.number(tensor.shape[i]);
    header.number(static_cast<std::uint32_t>(tensor.dtype));
    header.number(offset);
    offset = align_up(offset + sizes.back(), alignment);
    if (offset > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      refuse_tensor(tensor.name, "the file would take more than 2^63 - 1 bytes");
  }
  header.pad(alignment);

  state_ =
      std::make_unique<State>(State{AtomicFileWriter(path), std::move(tensors), std::move(sizes), alignment});
  state_->file.append(header.bytes());
}

Writer::~Writer() = default;
Writer::Writer(Writer&&) noexcept = default;

void Writer::append(std::span<const std::byte> bytes) {
  State& state = *state_;
  if (state.current == state.tensors.size())
    fail(ErrorCode::internal, "more bytes than the {} tensors of the file take", state.tensors.size());
  const std::uint64_t size = state.bytes[state.current];
  if (bytes.size() > size - state.written)
    fail(ErrorCode::internal, "tensor \"{}\" takes {} bytes, but {} were given",
         printable(state.tensors[state.current].name), size, state.written + bytes.size());
  state.file.append(bytes);
  state.written += bytes.size();
  if (state.written < size) return;
  const std::vector<std::byte> padding(align_up(state.file.size(), state.alignment) - state.file.size());
  state.file.append(padding);
  ++state.current;
  state.written = 0;
}

void Writer::finish() {
  if (state_->current != state_->tensors.size())
    fail(ErrorCode::internal, "tensor \"{}\" is not complete: {} of {} bytes were given",
         printable(state_->tensors[state_->current].name), state_->written, state_->bytes[state_->current]);
  state_->file.commit();
}

void write(const std::filesystem::path& path, const Metadata& metadata, std::span<const TensorView> tensors,
           std::uint32_t alignment) {
  std::vector<TensorInfo> infos;
  infos.reserve(tensors.size());
  for (const TensorView& tensor : tensors) infos.push_back({tensor.name, tensor.dtype, tensor.shape});
  Writer writer(path, metadata, std::move(infos), alignment);
  for (const TensorView& tensor : tensors) writer.append({tensor.data, tensor.bytes()});
  writer.finish();
}

}  // namespace quipu::gguf
