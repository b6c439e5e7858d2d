#include "server/request_fields.hpp"

#include <boost/json.hpp>
#include <cmath>

#include "core/error.hpp"
#include "text/unicode.hpp"

namespace quipu::server {

namespace json = boost::json;

namespace {

constexpr std::size_t kMaxDepth = 64;

[[noreturn]] void wrong_type(const std::string& path, const json::value& value, std::string_view expected) {
  bad_field(path, "\"{}\" is {}, expected {}", printable(path, 100), kind_of(value), expected);
}

}  // namespace

std::string_view kind_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
  }
  return "a value";
}

json::value parse_value(std::string_view body) {
  if (const std::size_t valid = text::valid_prefix(body); valid < body.size())
    bad_field({}, "the body is not valid UTF-8 at byte {}", valid);
  json::parse_options options;
  options.max_depth = kMaxDepth;
  json::stream_parser parser({}, options);
  json::error_code error;
  const std::size_t used = parser.write_some(body.data(), body.size(), error);
  std::size_t rest = used;
  while (!error && rest < body.size() &&
         std::string_view(" \t\r\n").find(body[rest]) != std::string_view::npos)
    ++rest;
  if (!error && rest < body.size()) error = json::error::extra_data;
  if (!error) parser.finish(error);
  if (error == json::error::too_deep) bad_field({}, "the body nests deeper than {} levels", kMaxDepth);
  if (error) bad_field({}, "the body is not valid JSON: {} at byte {}", error.message(), rest);
  return parser.release();
}

json::object parse_body(std::string_view body) {
  json::value value = parse_value(body);
  if (!value.is_object()) bad_field({}, "the body is {}, expected an object", kind_of(value));
  return std::move(value.get_object());
}

std::string Fields::path(std::string_view name) const {
  return prefix_.empty() ? std::string(name) : prefix_ + "." + std::string(name);
}

const json::value* Fields::find(std::string_view name) const {
  const json::value* value = object_->if_contains(name);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

std::optional<bool> Fields::boolean(std::string_view name) const {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_bool()) wrong_type(path(name), *value, "true or false");
  return value->get_bool();
}

std::optional<double> Fields::number(std::string_view name) const {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) wrong_type(path(name), *value, "a number");
  const double number = value->to_number<double>();
  if (!std::isfinite(number)) bad_field(path(name), "\"{}\" is no finite number", path(name));
  return number;
}

std::optional<std::int64_t> as_integer(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_double()) {
    const double d = value.get_double();
    if (d == std::floor(d) && std::fabs(d) < 9.2e18) return static_cast<std::int64_t>(d);
  }
  return std::nullopt;
}

std::string_view as_text(const json::value& value) {
  const json::string& text = value.get_string();
  return {text.data(), text.size()};
}

std::optional<std::int64_t> Fields::integer(std::string_view name, std::int64_t least,
                                            std::int64_t most) const {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) wrong_type(path(name), *value, "a whole number");
  const auto number = as_integer(*value);
  if (!number)
    bad_field(path(name), "\"{}\" is {}, expected a whole number of 64 bits", path(name),
              json::serialize(*value));
  if (*number < least || *number > most) {
    if (most == std::numeric_limits<std::int64_t>::max())
      bad_field(path(name), "\"{}\" is {}, allowed is {} or more", path(name), *number, least);
    bad_field(path(name), "\"{}\" is {}, allowed is {} to {}", path(name), *number, least, most);
  }
  return number;
}

std::optional<std::string> Fields::text(std::string_view name) const {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) wrong_type(path(name), *value, "a string");
  return std::string(as_text(*value));
}

const json::array* Fields::array(std::string_view name) const {
  const json::value* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) wrong_type(path(name), *value, "an array");
  return &value->get_array();
}

const json::object* Fields::object(std::string_view name) const {
  const json::value* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) wrong_type(path(name), *value, "an object");
  return &value->get_object();
}

}  // namespace quipu::server
