// Checked reading of `<architecture>.*` metadata: every value has a range, every error names file and key.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "formats/gguf/gguf.hpp"

namespace quipu::models {

class Keys {
 public:
  Keys(const gguf::File& file, std::string_view architecture)
      : metadata_(&file.metadata()), file_(printable(file.name())), prefix_(architecture) {}

  std::string key(std::string_view name) const { return fmt::format("{}.{}", prefix_, name); }
  const gguf::Metadata& metadata() const { return *metadata_; }
  const std::string& file() const { return file_; }

  /// A whole number in [low, high].
  std::uint32_t count(std::string_view name, std::uint64_t low, std::uint64_t high) const {
    return in_range(name, metadata_->get_uint(key(name)), low, high);
  }
  std::optional<std::uint32_t> try_count(std::string_view name, std::uint64_t low, std::uint64_t high) const {
    const auto value = metadata_->try_uint(key(name));
    if (!value) return std::nullopt;
    return in_range(name, *value, low, high);
  }
  /// One number for all layers, or an array with one for each.
  std::vector<std::uint32_t> per_layer(std::string_view name, std::uint32_t layers, std::uint64_t low,
                                       std::uint64_t high) const {
    const gguf::Value* value = metadata_->find(key(name));
    if (value == nullptr || value->type != gguf::ValueType::array)
      return std::vector<std::uint32_t>(layers, count(name, low, high));
    const auto items = *metadata_->try_ints(key(name));
    if (items.size() != layers)
      reject(name, fmt::format("an array of {}", items.size()),
             fmt::format("one number, or one for each of the {} blocks", layers));
    std::vector<std::uint32_t> result;
    for (const std::int64_t item : items) {
      if (item < 0) reject(name, fmt::format("{}", item), fmt::format("{} to {}", low, high));
      result.push_back(in_range(name, static_cast<std::uint64_t>(item), low, high));
    }
    return result;
  }
  /// A finite number in [low, high]; `low_open` leaves out `low` itself.
  std::optional<double> try_number(std::string_view name, double low, double high,
                                   bool low_open = false) const {
    const auto value = metadata_->try_float(key(name));
    if (!value) return std::nullopt;
    if (!(*value >= low && *value <= high) || (low_open && *value == low))
      reject(name, fmt::format("{}", *value), number_range(low, high, low_open));
    return *value;
  }
  double number(std::string_view name, double low, double high, bool low_open = false) const {
    metadata_->get_float(key(name));  // says "missing" in the reader's words
    return *try_number(name, low, high, low_open);
  }

  [[noreturn]] void reject(std::string_view name, std::string_view found, std::string_view expected) const {
    fail(ErrorCode::bad_file, "{}: {} is {}, expected {}", file_, key(name), found, expected);
  }
  static std::string number_range(double low, double high, bool low_open) {
    return fmt::format("a number {} {} and at most {}", low_open ? "above" : "of at least", low, high);
  }

 private:
  std::uint32_t in_range(std::string_view name, std::uint64_t value, std::uint64_t low,
                         std::uint64_t high) const {
    if (value < low || value > high)
      reject(name, fmt::format("{}", value), fmt::format("{} to {}", low, high));
    return static_cast<std::uint32_t>(value);
  }

  const gguf::Metadata* metadata_;
  std::string file_, prefix_;
};

}  // namespace quipu::models
