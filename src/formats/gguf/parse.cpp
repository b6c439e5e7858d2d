// Header, metadata and tensor infos. Every count is compared with the bytes that are left before anything is
// allocated for it, and no sum or product can wrap.
#include "formats/gguf/parse.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "formats/gguf/cursor.hpp"
#include "formats/gguf/limits.hpp"

namespace quipu::gguf {
namespace {

// ---- header ----

constexpr std::uint64_t kLeastEntryBytes = 8 + 1 + 4 + 1;           // key length, key, type, value
constexpr std::uint64_t kLeastTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name, dimensions, type, offset

struct Header {
  std::uint32_t version;
  std::uint64_t tensors, entries;
};

/// What a file without the magic is, when its first bytes tell.
std::string_view other_format(std::string_view text) {
  if (text.starts_with("version https://git-lfs"))
    return " (a Git LFS pointer, not the model itself: fetch it with `git lfs pull`)";
  for (std::string_view old : {"tjgg", "fmgg", "lmgg", "ggjt", "ggmf", "ggml"})
    if (text.starts_with(old)) return " (a format older than GGUF: get the model as GGUF)";
  if (text.starts_with("PK\x03\x04")) return " (a ZIP or PyTorch archive: it must be converted to GGUF)";
  if (text.size() > 9 && text[8] == '{' && text.substr(0, 9).find('\0') != text.npos)
    return " (it looks like safetensors: it must be converted to GGUF)";
  if (text.starts_with("<!DOCTYPE") || text.starts_with("<!doctype") || text.starts_with("<html"))
    return " (a web page: the download went wrong)";
  return "";
}

Header read_header(Cursor& cursor, std::string_view bytes) {
  const std::string_view magic = bytes.substr(0, 4);
  if (bytes.empty()) fail(ErrorCode::bad_file, "{}: not a GGUF file: it is empty", cursor.file());
  if (magic != std::string_view("GGUF", magic.size()))  // a shorter file may still be a cut one
    fail(ErrorCode::bad_file, "{}: not a GGUF file: it begins with \"{}\", expected \"GGUF\"{}",
         cursor.file(), printable(magic), other_format(bytes));
  cursor.number<std::uint32_t>("magic");
  const auto version = cursor.number<std::uint32_t>("version");
  if ((version & 0xFFFF) == 0 && version != 0)
    fail(ErrorCode::unsupported,
         "{}: big-endian GGUF file (its version reads as 0x{:08X}); quipu reads little-endian files",
         cursor.file(), version);
  if (version != 2 && version != 3)
    fail(ErrorCode::unsupported, "{}: GGUF version {} at offset 4; quipu reads versions 2 and 3",
         cursor.file(), version);
  Header header{version, cursor.number<std::uint64_t>("number of tensors"),
                cursor.number<std::uint64_t>("number of keys")};
  if (header.tensors > cursor.size() / kLeastTensorBytes)
    cursor.refuse(
        fmt::format("the number of tensors at offset 8 is {}, more than a file of {} bytes can hold: it is "
                    "cut off, or the number is wrong",
                    header.tensors, cursor.size()));
  if (header.entries > cursor.size() / kLeastEntryBytes)
    cursor.refuse(
        fmt::format("the number of keys at offset 16 is {}, more than a file of {} bytes can hold: it is cut "
                    "off, or the number is wrong",
                    header.entries, cursor.size()));
  return header;
}

// ---- metadata ----

class MetadataReader {
 public:
  explicit MetadataReader(Cursor& cursor) : cursor_(cursor) {}

  Metadata read(std::uint64_t count, const std::string& origin) {
    Metadata metadata;
    metadata.set_origin(origin);
    for (std::uint64_t i = 0; i < count; ++i) {
      cursor_.enter("key", i, count);
      const std::uint64_t offset = cursor_.position();
      const std::string_view key = cursor_.string("key");
      if (key.empty()) cursor_.refuse(fmt::format("the key at offset {} is empty", offset));
      if (key.size() > kLongestKey)
        cursor_.refuse(fmt::format("the key at offset {} is {} bytes long, expected at most {}", offset,
                                   key.size(), kLongestKey));
      cursor_.named(key);
      if (!is_plain_text(key))
        cursor_.refuse(fmt::format(
            "the key at offset {} holds control characters or is not UTF-8, expected text", offset));
      Value value = read_value();
      if (!metadata.add(std::string(key), std::move(value)))
        cursor_.refuse(fmt::format("duplicate key, for the second time at offset {}", offset));
    }
    return metadata;
  }

 private:
  ValueType read_type(std::string_view what) {
    const std::uint64_t offset = cursor_.position();
    const auto number = cursor_.number<std::uint32_t>(what);
    if (number > static_cast<std::uint32_t>(ValueType::f64))
      cursor_.refuse(fmt::format("unknown {} {} at offset {}, expected 0 to 12", what, number, offset));
    return static_cast<ValueType>(number);
  }

  bool read_bool() {
    const std::uint64_t offset = cursor_.position();
    const auto byte = cursor_.number<std::uint8_t>("value");
    if (byte > 1)
      cursor_.refuse(fmt::format("the bool at offset {} has the value {}, expected 0 or 1", offset, byte));
    return byte == 1;
  }

  template <class Stored>
  Stored read_number() {
    return cursor_.number<Stored>("value");
  }

  Value read_value() {
    const ValueType type = read_type("value type");
    switch (type) {
      case ValueType::u8:
        return {type, std::uint64_t{read_number<std::uint8_t>()}};
      case ValueType::i8:
        return {type, std::int64_t{read_number<std::int8_t>()}};
      case ValueType::u16:
        return {type, std::uint64_t{read_number<std::uint16_t>()}};
      case ValueType::i16:
        return {type, std::int64_t{read_number<std::int16_t>()}};
      case ValueType::u32:
        return {type, std::uint64_t{read_number<std::uint32_t>()}};
      case ValueType::i32:
        return {type, std::int64_t{read_number<std::int32_t>()}};
      case ValueType::u64:
        return {type, read_number<std::uint64_t>()};
      case ValueType::i64:
        return {type, read_number<std::int64_t>()};
      case ValueType::f32:
        return {type, double{read_number<float>()}};
      case ValueType::f64:
        return {type, read_number<double>()};
      case ValueType::boolean:
        return {type, read_bool()};
      case ValueType::string:
        return {type, std::string(cursor_.string("string value"))};
      case ValueType::array:
        return {type, read_array(1)};
    }
    fail(ErrorCode::internal, "unreachable value type");
  }

  static std::uint64_t least_bytes(ValueType type) {
    switch (type) {
      case ValueType::u8:
      case ValueType::i8:
      case ValueType::boolean:
        return 1;
      case ValueType::u16:
      case ValueType::i16:
        return 2;
      case ValueType::u32:
      case ValueType::i32:
      case ValueType::f32:
        return 4;
      case ValueType::u64:
      case ValueType::i64:
      case ValueType::f64:
      case ValueType::string:
        return 8;
      case ValueType::array:
        return 12;  // element type and count
    }
    return 1;
  }

  template <class Kept, class Stored>
  std::vector<Kept> read_numbers(std::size_t count) {
    std::vector<Kept> numbers(count);
    for (Kept& number : numbers) number = Kept{read_number<Stored>()};
    return numbers;
  }

  Array read_array(int depth) {
    Array array;
    array.element_type = read_type("array element type");
    const std::uint64_t offset = cursor_.position();
    const auto count64 = cursor_.number<std::uint64_t>("array count");
    if (count64 > cursor_.remaining() / least_bytes(array.element_type))
      cursor_.refuse(
          fmt::format("the array of {} at offset {} claims {} elements, but the file is cut off after {} "
                      "more bytes",
                      to_string(array.element_type), offset, count64, cursor_.remaining()));
    elements_ += count64;  // both at most the file's size
    if (elements_ > kMostElements)
      cursor_.refuse(
          fmt::format("the array at offset {} of {} elements brings the metadata to {} array elements, over "
                      "the limit of {}",
                      offset, count64, elements_, kMostElements));
    const auto count = static_cast<std::size_t>(count64);
    switch (array.element_type) {
      case ValueType::u8:
        array.items = read_numbers<std::uint64_t, std::uint8_t>(count);
        break;
      case ValueType::u16:
        array.items = read_numbers<std::uint64_t, std::uint16_t>(count);
        break;
      case ValueType::u32:
        array.items = read_numbers<std::uint64_t, std::uint32_t>(count);
        break;
      case ValueType::u64:
        array.items = read_numbers<std::uint64_t, std::uint64_t>(count);
        break;
      case ValueType::i8:
        array.items = read_numbers<std::int64_t, std::int8_t>(count);
        break;
      case ValueType::i16:
        array.items = read_numbers<std::int64_t, std::int16_t>(count);
        break;
      case ValueType::i32:
        array.items = read_numbers<std::int64_t, std::int32_t>(count);
        break;
      case ValueType::i64:
        array.items = read_numbers<std::int64_t, std::int64_t>(count);
        break;
      case ValueType::f32:
        array.items = read_numbers<double, float>(count);
        break;
      case ValueType::f64:
        array.items = read_numbers<double, double>(count);
        break;
      case ValueType::boolean: {
        std::vector<std::uint64_t> values(count);
        for (std::uint64_t& value : values) value = read_bool() ? 1 : 0;
        array.items = std::move(values);
        break;
      }
      case ValueType::string: {
        TextList strings;
        strings.reserve(count, 0);
        for (std::size_t i = 0; i < count; ++i) {
          const std::string_view text = cursor_.string("string of an array");
          if (!strings.fits(text.size()))
            cursor_.refuse(fmt::format("the strings of the array at offset {} have 4 GiB and more", offset));
          strings.push_back(text);
        }
        array.items = std::move(strings);
        break;
      }
      case ValueType::array: {
        if (depth == kDeepestArray)
          cursor_.refuse(
              fmt::format("arrays nested deeper than the limit of {} at offset {}", kDeepestArray, offset));
        std::vector<Array> arrays;
        arrays.reserve(count);
        for (std::size_t i = 0; i < count; ++i) arrays.push_back(read_array(depth + 1));
        array.items = std::move(arrays);
        break;
      }
    }
    return array;
  }

  Cursor& cursor_;
  std::uint64_t elements_ = 0;
};

std::uint64_t read_alignment(const Metadata& metadata) {
  if (metadata.find(kAlignmentKey) == nullptr) return kDefaultAlignment;
  const std::uint64_t alignment = metadata.get_uint(kAlignmentKey);
  if (!is_usable_alignment(alignment))
    fail(ErrorCode::bad_file, "{}: key \"{}\" is {}, expected a power of two from {} to 2^31",
         printable(metadata.origin(), 1000), kAlignmentKey, alignment, kLeastAlignment);
  return alignment;
}

// ---- tensors ----

/// Q4_2, Q4_3 and the repacked forms of Q4_0 and IQ4_NL once had numbers.
bool is_withdrawn(std::uint32_t type) {
  return type == 4 || type == 5 || (type >= 31 && type <= 33) || (type >= 36 && type <= 38);
}

/// Fills dtype and shape; returns the offset the file gives.
std::uint64_t read_tensor_info(Cursor& cursor, TensorView& tensor) {
  std::uint64_t at = cursor.position();
  const std::string_view name = cursor.string("tensor name");
  if (name.empty()) cursor.refuse(fmt::format("the tensor name at offset {} is empty", at));
  if (name.size() > kLongestTensorName)
    cursor.refuse(fmt::format("the tensor name at offset {} is {} bytes long, expected at most {}", at,
                              name.size(), kLongestTensorName));
  cursor.named(name);
  tensor.name = name;

  at = cursor.position();
  const auto dimensions = cursor.number<std::uint32_t>("number of dimensions");
  if (dimensions < 1 || dimensions > kMostDimensions)
    cursor.refuse(fmt::format("the shape has {} dimensions at offset {}, expected 1 to {}", dimensions, at,
                              kMostDimensions));
  std::int64_t elements = 1;
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    at = cursor.position();
    const auto size = cursor.number<std::uint64_t>("dimension");
    if (size < 1 || size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      cursor.refuse(
          fmt::format("dimension {} of the shape is {} at offset {}, expected 1 to 2^63 - 1", i, size, at));
    tensor.shape[i] = static_cast<std::int64_t>(size);
    if (__builtin_mul_overflow(elements, tensor.shape[i], &elements))
      cursor.refuse(
          fmt::format("the shape {} at offset {} has more than 2^63 - 1 elements", shape_text(tensor), at));
  }

  at = cursor.position();
  const auto type = cursor.number<std::uint32_t>("tensor type");
  const DTypeInfo* dtype = find_dtype(type);
  if (dtype == nullptr)
    fail(ErrorCode::unsupported, "{}: {}: unknown tensor type {} at offset {}{}", cursor.file(),
         cursor.where(), type, at, is_withdrawn(type) ? " (withdrawn from the format)" : "");
  tensor.dtype = dtype->dtype;
  if (tensor.shape[0] % dtype->block_size != 0)
    cursor.refuse(
        fmt::format("the shape {} does not fit type {}: rows of {}, expected a multiple of its block size {}",
                    shape_text(tensor), dtype->name, tensor.shape[0], dtype->block_size));
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / dtype->block_size, std::int64_t{dtype->block_bytes}, &bytes))
    cursor.refuse(fmt::format("the shape {} of type {} takes more than 2^63 - 1 bytes", shape_text(tensor),
                              dtype->name));
  return cursor.number<std::uint64_t>("tensor offset");
}

/// Points the tensor at its bytes; returns their end as an offset in the file.
std::uint64_t place_tensor(const Cursor& cursor, std::span<const std::byte> bytes, std::uint64_t data_begin,
                           std::uint64_t alignment, std::uint64_t offset, TensorView& tensor) {
  if (offset % alignment != 0)
    cursor.refuse(fmt::format("its data offset {} is not a multiple of the alignment {}", offset, alignment));
  const std::uint64_t length = tensor.bytes();  // checked above to be below 2^63
  if (data_begin > bytes.size() || offset > bytes.size() - data_begin ||
      length > bytes.size() - data_begin - offset) {
    const std::string start = offset > std::numeric_limits<std::uint64_t>::max() - data_begin
                                  ? fmt::format("{} + {}", data_begin, offset)
                                  : fmt::format("{}", data_begin + offset);
    cursor.refuse(fmt::format(
        "its data, {} bytes ({} {}) at offset {}, does not fit: the file is cut off at {} bytes{}", length,
        to_string(tensor.dtype), shape_text(tensor), start, bytes.size(),
        alignment == kDefaultAlignment ? std::string()
                                       : fmt::format(" (general.alignment is {})", alignment)));
  }
  tensor.data = bytes.data() + data_begin + offset;
  return data_begin + offset + length;
}

void refuse_duplicates(const Container& container, const std::string& name) {
  const auto& order = container.by_name;
  for (std::size_t i = 1; i < order.size(); ++i)
    if (container.tensors[order[i - 1]].name == container.tensors[order[i]].name)
      fail(ErrorCode::bad_file, "{}: duplicate tensor \"{}\" (tensors {} and {})", printable(name, 1000),
           printable(container.tensors[order[i]].name), order[i - 1] + 1, order[i] + 1);
}

void refuse_overlaps(const Container& container, const std::byte* base, const std::string& name) {
  std::vector<std::size_t> order(container.tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto& tensors = container.tensors;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return tensors[a].data < tensors[b].data; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const TensorView& first = tensors[order[i - 1]];
    const TensorView& second = tensors[order[i]];
    if (static_cast<std::size_t>(second.data - first.data) < first.bytes())
      fail(ErrorCode::bad_file,
           "{}: tensor \"{}\": its data at offset {} overlaps that of tensor \"{}\" ({} bytes at offset {})",
           printable(name, 1000), printable(second.name), second.data - base, printable(first.name),
           first.bytes(), first.data - base);
  }
}

}  // namespace

Container parse_container(std::span<const std::byte> bytes, const std::string& name) {
  Cursor cursor(bytes, name);
  const Header header = read_header(cursor, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  Container container;
  container.version = header.version;
  container.metadata = MetadataReader(cursor).read(header.entries, name);
  container.alignment = read_alignment(container.metadata);

  std::vector<std::uint64_t> offsets;
  const std::uint64_t fitting = std::min(header.tensors, cursor.remaining() / kLeastTensorBytes);
  offsets.reserve(static_cast<std::size_t>(fitting));
  container.tensors.reserve(static_cast<std::size_t>(fitting));
  for (std::uint64_t i = 0; i < header.tensors; ++i) {
    cursor.enter("tensor", i, header.tensors);
    offsets.push_back(read_tensor_info(cursor, container.tensors.emplace_back()));
  }

  const std::uint64_t data_begin = align_up(cursor.position(), container.alignment);
  container.data_end = std::min<std::uint64_t>(data_begin, bytes.size());
  for (std::size_t i = 0; i < container.tensors.size(); ++i) {
    TensorView& tensor = container.tensors[i];
    cursor.enter("tensor", i, header.tensors);
    cursor.named(tensor.name);
    container.data_end = std::max(
        container.data_end, place_tensor(cursor, bytes, data_begin, container.alignment, offsets[i], tensor));
  }

  container.by_name.resize(container.tensors.size());
  std::iota(container.by_name.begin(), container.by_name.end(), std::size_t{0});
  std::sort(container.by_name.begin(), container.by_name.end(), [&](std::size_t a, std::size_t b) {
    const int order = container.tensors[a].name.compare(container.tensors[b].name);
    return order != 0 ? order < 0 : a < b;
  });
  refuse_duplicates(container, name);
  refuse_overlaps(container, bytes.data(), name);
  return container;
}

}  // namespace quipu::gguf
