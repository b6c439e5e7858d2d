// Metadata values: typed access with errors that name the file, the key and both types.
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/error.hpp"
#include "formats/gguf/gguf.hpp"

namespace quipu::gguf {
namespace {

bool is_unsigned(ValueType type) {
  return type == ValueType::u8 || type == ValueType::u16 || type == ValueType::u32 || type == ValueType::u64;
}
bool is_signed(ValueType type) {
  return type == ValueType::i8 || type == ValueType::i16 || type == ValueType::i32 || type == ValueType::i64;
}
bool is_float(ValueType type) { return type == ValueType::f32 || type == ValueType::f64; }

std::string type_name(const Value& value) {
  if (const auto* array = std::get_if<Array>(&value.data))
    return fmt::format("array of {}", to_string(array->element_type));
  return std::string(to_string(value.type));
}

[[noreturn]] void wrong_type(const Metadata& metadata, std::string_view key, const Value& value,
                             std::string_view expected) {
  fail(ErrorCode::bad_file, "{}: key \"{}\" has type {}, expected {}", printable(metadata.origin(), 1000),
       printable(key), type_name(value), expected);
}

[[noreturn]] void out_of_range(const Metadata& metadata, std::string_view key, const std::string& found,
                               std::string_view expected) {
  fail(ErrorCode::bad_file, "{}: key \"{}\" is {}, expected {}", printable(metadata.origin(), 1000),
       printable(key), found, expected);
}

template <class T>
const T& required(const Metadata& metadata, std::string_view key, const T* found) {
  if (found == nullptr)
    fail(ErrorCode::bad_file, "{}: missing key \"{}\"", printable(metadata.origin(), 1000), printable(key));
  return *found;
}

std::uint64_t as_uint(const Metadata& metadata, std::string_view key, const Value& value) {
  if (is_unsigned(value.type)) return std::get<std::uint64_t>(value.data);
  if (!is_signed(value.type)) wrong_type(metadata, key, value, "an integer");
  const std::int64_t number = std::get<std::int64_t>(value.data);
  if (number < 0) out_of_range(metadata, key, std::to_string(number), "an integer that is not negative");
  return static_cast<std::uint64_t>(number);
}

std::int64_t as_int(const Metadata& metadata, std::string_view key, const Value& value) {
  if (is_signed(value.type)) return std::get<std::int64_t>(value.data);
  if (!is_unsigned(value.type)) wrong_type(metadata, key, value, "an integer");
  const std::uint64_t number = std::get<std::uint64_t>(value.data);
  if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    out_of_range(metadata, key, std::to_string(number), "an integer below 2^63");
  return static_cast<std::int64_t>(number);
}

double as_float(const Metadata& metadata, std::string_view key, const Value& value) {
  if (!is_float(value.type)) wrong_type(metadata, key, value, "f32 or f64");
  return std::get<double>(value.data);
}

bool as_bool(const Metadata& metadata, std::string_view key, const Value& value) {
  if (value.type != ValueType::boolean) wrong_type(metadata, key, value, "bool");
  return std::get<bool>(value.data);
}

const std::string& as_string(const Metadata& metadata, std::string_view key, const Value& value) {
  if (value.type != ValueType::string) wrong_type(metadata, key, value, "string");
  return std::get<std::string>(value.data);
}

const Array& as_array(const Metadata& metadata, std::string_view key, const Value& value) {
  if (value.type != ValueType::array) wrong_type(metadata, key, value, "an array");
  return std::get<Array>(value.data);
}

}  // namespace

std::string_view to_string(ValueType type) {
  switch (type) {
    case ValueType::u8:
      return "u8";
    case ValueType::i8:
      return "i8";
    case ValueType::u16:
      return "u16";
    case ValueType::i16:
      return "i16";
    case ValueType::u32:
      return "u32";
    case ValueType::i32:
      return "i32";
    case ValueType::f32:
      return "f32";
    case ValueType::boolean:
      return "bool";
    case ValueType::string:
      return "string";
    case ValueType::array:
      return "array";
    case ValueType::u64:
      return "u64";
    case ValueType::i64:
      return "i64";
    case ValueType::f64:
      return "f64";
  }
  return "unknown";
}

std::size_t Array::size() const {
  return std::visit([](const auto& list) { return list.size(); }, items);
}

bool Array::operator==(const Array& other) const {
  return element_type == other.element_type && items == other.items;
}

bool Value::operator==(const Value& other) const { return type == other.type && data == other.data; }

const Value* Metadata::find(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].value;
}

bool Metadata::add(std::string key, Value value) {
  const auto [place, added] = index_.try_emplace(key, entries_.size());
  if (added) entries_.push_back({std::move(key), std::move(value)});
  return added;
}

bool Metadata::erase(std::string_view key) {
  const auto found = index_.find(key);
  if (found == index_.end()) return false;
  const std::size_t at = found->second;
  index_.erase(found);
  for (auto& [name, position] : index_) position -= position > at ? 1 : 0;
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(at));
  return true;
}

void Metadata::set(std::string key, Value value) {
  const auto found = index_.find(key);
  if (found != index_.end())
    entries_[found->second].value = std::move(value);
  else
    add(std::move(key), std::move(value));
}

std::uint64_t Metadata::get_uint(std::string_view key) const {
  return as_uint(*this, key, required(*this, key, find(key)));
}
std::int64_t Metadata::get_int(std::string_view key) const {
  return as_int(*this, key, required(*this, key, find(key)));
}
double Metadata::get_float(std::string_view key) const {
  return as_float(*this, key, required(*this, key, find(key)));
}
bool Metadata::get_bool(std::string_view key) const {
  return as_bool(*this, key, required(*this, key, find(key)));
}
const std::string& Metadata::get_string(std::string_view key) const {
  return as_string(*this, key, required(*this, key, find(key)));
}
const Array& Metadata::get_array(std::string_view key) const {
  return as_array(*this, key, required(*this, key, find(key)));
}

std::optional<std::uint64_t> Metadata::try_uint(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  return as_uint(*this, key, *value);
}
std::optional<double> Metadata::try_float(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  return as_float(*this, key, *value);
}
std::optional<bool> Metadata::try_bool(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  return as_bool(*this, key, *value);
}
std::optional<std::string> Metadata::try_string(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  return as_string(*this, key, *value);
}
const Array* Metadata::try_array(std::string_view key) const {
  const Value* value = find(key);
  return value == nullptr ? nullptr : &as_array(*this, key, *value);
}

const TextList* Metadata::try_strings(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return nullptr;
  if (value->type != ValueType::array) wrong_type(*this, key, *value, "an array of string");
  const Array& array = std::get<Array>(value->data);
  if (array.element_type != ValueType::string) wrong_type(*this, key, *value, "an array of string");
  return &std::get<TextList>(array.items);
}

std::optional<std::vector<float>> Metadata::try_floats(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != ValueType::array) wrong_type(*this, key, *value, "an array of f32 or f64");
  const Array& array = std::get<Array>(value->data);
  if (!is_float(array.element_type)) wrong_type(*this, key, *value, "an array of f32 or f64");
  const auto& items = std::get<std::vector<double>>(array.items);
  std::vector<float> result(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (std::isfinite(items[i]) && std::fabs(items[i]) > double{std::numeric_limits<float>::max()})
      out_of_range(*this, key, fmt::format("{} at index {}", items[i], i), "a number in the range of f32");
    result[i] = static_cast<float>(items[i]);
  }
  return result;
}

std::optional<std::vector<std::int64_t>> Metadata::try_ints(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != ValueType::array) wrong_type(*this, key, *value, "an array of integers");
  const Array& array = std::get<Array>(value->data);
  if (is_signed(array.element_type)) return std::get<std::vector<std::int64_t>>(array.items);
  if (!is_unsigned(array.element_type)) wrong_type(*this, key, *value, "an array of integers");
  const auto& items = std::get<std::vector<std::uint64_t>>(array.items);
  for (std::size_t i = 0; i < items.size(); ++i)
    if (items[i] > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      out_of_range(*this, key, fmt::format("{} at index {}", items[i], i), "integers below 2^63");
  return std::vector<std::int64_t>(items.begin(), items.end());
}

}  // namespace quipu::gguf
