// Typed access to the fields of a request's JSON, with errors that name the field.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "server/request_error.hpp"

namespace quipu::server {

/// The body of a request as an object. Throws a 400: not JSON (with the offset), bad UTF-8, nested deeper
/// than 64, not an object.
boost::json::object parse_body(std::string_view body);
/// The same for a body that need be no object.
boost::json::value parse_value(std::string_view body);

/// "a string", "null" …: what a value is, for messages.
std::string_view kind_of(const boost::json::value& value);

/// A view of one object. A field that is absent or null reads as nothing; a value of another type, or outside
/// of the range, is a 400.
class Fields {
 public:
  explicit Fields(const boost::json::object& object, std::string prefix = {})
      : object_(&object), prefix_(std::move(prefix)) {}

  /// The value, unless absent or null.
  const boost::json::value* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }

  std::optional<bool> boolean(std::string_view name) const;
  std::optional<double> number(std::string_view name) const;
  /// Whole numbers, also written as 3.0.
  std::optional<std::int64_t> integer(std::string_view name,
                                      std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                                      std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;
  std::optional<std::string> text(std::string_view name) const;
  const boost::json::array* array(std::string_view name) const;
  const boost::json::object* object(std::string_view name) const;
  /// The full name for messages: "messages[2].role".
  std::string path(std::string_view name) const;

 private:
  const boost::json::object* object_;
  std::string prefix_;
};

/// The number of a value that is one: finite and whole.
std::optional<std::int64_t> as_integer(const boost::json::value& value);
std::string_view as_text(const boost::json::value& value);  ///< of a string

}  // namespace quipu::server
