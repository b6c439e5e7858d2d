// Hand-made GGUF files, right or wrong in one place: every field is written as it is told, nothing is
// checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quipu::test {

/// Value type numbers of the format (docs/gguf.md in the ggml repository).
enum : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

class GgufBytes {
 public:
  /// Header: magic, version, counts.
  static GgufBytes header(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
    GgufBytes bytes;
    bytes.text("GGUF").put(version).put(tensors).put(keys);
    return bytes;
  }

  /// The little-endian bytes of a number.
  template <class T>
  GgufBytes& put(T value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
    return *this;
  }
  GgufBytes& text(std::string_view text) {
    // One by one: GCC 12 takes a range insert here for an overflow.
    for (const char c : text) bytes_.push_back(static_cast<std::byte>(c));
    return *this;
  }
  /// Length and bytes.
  GgufBytes& string(std::string_view value) { return put(std::uint64_t{value.size()}).text(value); }
  GgufBytes& zeros(std::size_t count) {
    bytes_.resize(bytes_.size() + count);
    return *this;
  }
  GgufBytes& pad(std::size_t alignment = 32) {
    return zeros((alignment - bytes_.size() % alignment) % alignment);
  }

  template <class T>
  GgufBytes& key(std::string_view name, std::uint32_t type, T value) {
    return string(name).put(type).put(value);
  }
  GgufBytes& key(std::string_view name, std::string_view value) {
    return string(name).put(std::uint32_t{kString}).string(value);
  }
  /// Key, "array", element type and count; the elements follow by `put` or `string`.
  GgufBytes& array(std::string_view name, std::uint32_t element_type, std::uint64_t count) {
    return string(name).put(std::uint32_t{kArray}).put(element_type).put(count);
  }
  GgufBytes& tensor(std::string_view name, std::initializer_list<std::uint64_t> dimensions,
                    std::uint32_t type, std::uint64_t offset) {
    string(name).put(static_cast<std::uint32_t>(dimensions.size()));
    for (const std::uint64_t size : dimensions) put(size);
    return put(type).put(offset);
  }

  std::size_t size() const { return bytes_.size(); }
  std::span<const std::byte> span() const { return bytes_; }
  std::span<const std::byte> first(std::size_t count) const { return span().first(count); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace quipu::test
