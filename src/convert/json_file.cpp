#include "convert/json_file.hpp"

#include <boost/json/monotonic_resource.hpp>
#include <boost/json/parse.hpp>
#include <cmath>
#include <system_error>

#include "core/error.hpp"
#include "core/mapped_file.hpp"

namespace quipu::convert {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::size_t kLongestFile = std::size_t{256} << 20;  // the largest tokenizer.json known has 34 MB
constexpr std::size_t kDeepest = 32;

const json::value* descend(const json::value& root, std::string_view path) {
  const json::value* value = &root;
  while (true) {
    const std::size_t dot = path.find('.');
    const json::object* object = value->if_object();
    if (object == nullptr) return nullptr;
    value = object->if_contains(path.substr(0, dot));
    if (value == nullptr || value->is_null()) return nullptr;
    if (dot == path.npos) return value;
    path.remove_prefix(dot + 1);
  }
}

}  // namespace

std::string kind_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return value.get_bool() ? "true" : "false";
    case json::kind::int64:
      return fmt::format("{}", value.get_int64());
    case json::kind::uint64:
      return fmt::format("{}", value.get_uint64());
    case json::kind::double_:
      return fmt::format("{}", value.get_double());
    case json::kind::string:
      return "\"" + printable(std::string_view(value.get_string())) + "\"";
    case json::kind::array:
      return fmt::format("an array of {}", value.get_array().size());
    case json::kind::object:
      return "an object";
  }
  return "?";
}

JsonFile JsonFile::parse(std::string_view text, std::string name) {
  if (text.size() > kLongestFile)
    fail(ErrorCode::bad_file, "{}: {} bytes, expected at most {}", printable(name, 1000), text.size(),
         kLongestFile);
  json::parse_options options;
  options.max_depth = kDeepest;
  json::error_code error;
  JsonFile file;
  // Vocabularies have half a million small strings: they are laid out one after the other and freed at once.
  file.root_ = std::make_shared<json::value>(
      json::parse(text, error, json::make_shared_resource<json::monotonic_resource>(), options));
  file.name_ = std::move(name);
  if (error) fail(ErrorCode::bad_file, "{}: not JSON: {}", printable(file.name_, 1000), error.message());
  if (!file.root_->is_object())
    fail(ErrorCode::bad_file, "{}: found {}, expected a JSON object", printable(file.name_, 1000),
         kind_of(*file.root_));
  return file;
}

JsonFile JsonFile::open(const fs::path& path) {
  const MappedFile file(path, MappedFile::Mode::read);
  return parse({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path.string());
}

std::optional<JsonFile> JsonFile::try_open(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  return open(path);
}

const json::value* JsonFile::find(std::string_view keys) const {
  while (true) {
    const std::size_t bar = keys.find('|');
    if (const json::value* found = descend(*root_, keys.substr(0, bar))) return found;
    if (bar == keys.npos) return nullptr;
    keys.remove_prefix(bar + 1);
  }
}

void JsonFile::reject(std::string_view keys, std::string_view found, std::string_view expected) const {
  fail(ErrorCode::bad_file, "{}: {} is {}, expected {}", printable(name_, 1000), keys, found, expected);
}

void JsonFile::reject_missing(std::string_view keys) const {
  fail(ErrorCode::bad_file, "{}: key {} is missing", printable(name_, 1000), keys);
}

std::optional<std::uint64_t> JsonFile::try_count(std::string_view keys) const {
  const json::value* value = find(keys);
  if (value == nullptr) return std::nullopt;
  if (value->is_uint64()) return value->get_uint64();
  if (value->is_int64() && value->get_int64() >= 0) return static_cast<std::uint64_t>(value->get_int64());
  // Some configurations write 4096.0 or 1e30 for "no limit".
  if (value->is_double() && value->get_double() >= 0 && value->get_double() <= 9e15 &&
      std::floor(value->get_double()) == value->get_double())
    return static_cast<std::uint64_t>(value->get_double());
  reject(keys, kind_of(*value), "a whole number of at least 0");
}

std::uint64_t JsonFile::count(std::string_view keys) const {
  if (const auto value = try_count(keys)) return *value;
  reject_missing(keys);
}

std::optional<double> JsonFile::try_number(std::string_view keys) const {
  const json::value* value = find(keys);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) reject(keys, kind_of(*value), "a number");
  const double number = value->to_number<double>();
  if (!std::isfinite(number)) reject(keys, kind_of(*value), "a finite number");
  return number;
}

double JsonFile::number(std::string_view keys) const {
  if (const auto value = try_number(keys)) return *value;
  reject_missing(keys);
}

std::optional<bool> JsonFile::try_flag(std::string_view keys) const {
  const json::value* value = find(keys);
  if (value == nullptr) return std::nullopt;
  if (!value->is_bool()) reject(keys, kind_of(*value), "true or false");
  return value->get_bool();
}

std::optional<std::string> JsonFile::try_text(std::string_view keys) const {
  const json::value* value = find(keys);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) reject(keys, kind_of(*value), "a string");
  return std::string(value->get_string());
}

std::optional<std::vector<double>> JsonFile::try_numbers(std::string_view keys) const {
  const json::value* value = find(keys);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) reject(keys, kind_of(*value), "an array of numbers");
  std::vector<double> result;
  for (const json::value& item : value->get_array()) {
    if (!item.is_number()) reject(keys, kind_of(item) + " among its elements", "an array of numbers");
    result.push_back(item.to_number<double>());
  }
  return result;
}

std::optional<std::vector<std::string>> JsonFile::try_texts(std::string_view keys) const {
  const json::value* value = find(keys);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) reject(keys, kind_of(*value), "an array of strings");
  std::vector<std::string> result;
  for (const json::value& item : value->get_array()) {
    if (!item.is_string()) reject(keys, kind_of(item) + " among its elements", "an array of strings");
    result.emplace_back(item.get_string());
  }
  return result;
}

void JsonFile::set_default(std::string_view key, json::value value) {
  json::object& object = root_->get_object();
  if (json::value* found = object.if_contains(key)) {
    if (found->is_null()) *found = std::move(value);
  } else {
    object.emplace(key, std::move(value));
  }
}

void JsonFile::set(std::string_view key, json::value value) {
  root_->get_object().insert_or_assign(key, std::move(value));
}

void JsonFile::raise(std::string_view key) {
  json::object& object = root_->get_object();
  const json::value* inner = object.if_contains(key);
  if (inner == nullptr || !inner->is_object()) return;
  const json::object copy = inner->get_object();
  for (const auto& [name, value] : copy) object.insert_or_assign(name, value);
}

}  // namespace quipu::convert
