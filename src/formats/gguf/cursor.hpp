// Reading numbers and strings from untrusted bytes, never past their end.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace quipu::gguf {

/// A position in the bytes of one file. What is being read is set beside it and put into words only when
/// something fails, so that reading half a million strings formats nothing.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, std::string_view file) : bytes_(bytes), file_(file) {}

  /// What the next bytes belong to: "key" or "tensor", its number (from 0) of how many, and its name once
  /// known.
  void enter(std::string_view kind, std::uint64_t index, std::uint64_t total) {
    kind_ = kind, index_ = index, total_ = total, name_ = {};
  }
  void named(std::string_view name) { name_ = name; }

  std::uint64_t position() const { return position_; }
  std::uint64_t remaining() const { return bytes_.size() - position_; }
  std::uint64_t size() const { return bytes_.size(); }

  /// A little-endian number.
  template <class T>
  T number(std::string_view what) {
    static_assert(std::endian::native == std::endian::little);
    T value;
    std::memcpy(&value, take(sizeof(T), what), sizeof(T));
    return value;
  }

  /// A length of 64 bits and that many bytes; the view points into the file.
  std::string_view string(std::string_view what) {
    const std::uint64_t start = position_;
    const auto length = number<std::uint64_t>(what);
    if (length > remaining()) too_long(what, start, length);
    const std::byte* data = take(static_cast<std::size_t>(length), what);
    return {reinterpret_cast<const char*>(data), static_cast<std::size_t>(length)};
  }

  /// Throws bad_file: "FILE: <where>: MESSAGE".
  [[noreturn]] void refuse(std::string_view message) const;
  /// "tensor 3 of 12 (\"output.weight\")" and the like.
  std::string where() const;
  std::string file() const;

 private:
  const std::byte* take(std::size_t count, std::string_view what) {
    if (count > remaining()) ends_inside(what, count);
    const std::byte* data = bytes_.data() + position_;
    position_ += count;
    return data;
  }
  [[noreturn]] void ends_inside(std::string_view what, std::uint64_t needed) const;
  [[noreturn]] void too_long(std::string_view what, std::uint64_t at, std::uint64_t length) const;

  std::span<const std::byte> bytes_;
  std::string_view file_;
  std::size_t position_ = 0;
  std::string_view kind_ = "header";
  std::string_view name_;
  std::uint64_t index_ = 0, total_ = 0;
};

}  // namespace quipu::gguf
