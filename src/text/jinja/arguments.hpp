// What filters, tests and methods do with their arguments.
#pragma once

#include "text/jinja/context.hpp"

namespace quipu::text::jinja {

inline const Value& argument(const Arguments& arguments, std::size_t index) {
  return arguments.positional[index];
}
/// A text argument; anything else throws.
inline const Text& text_argument(Context& context, const Value& value) {
  if (value.is(Kind::undefined)) context.fail_undefined(value);
  if (!value.is(Kind::string)) context.fail_type("expected a string, found {}", type_name(value));
  return value.text();
}
inline std::int64_t int_argument(Context& context, const Value& value, std::int64_t otherwise) {
  if (!given(value)) return otherwise;
  if (value.is(Kind::undefined)) context.fail_undefined(value);
  if (!value.is_integral()) context.fail_type("expected an integer, found {}", type_name(value));
  return value.integer();
}
inline bool flag_argument(Context& context, const Value& value, bool otherwise) {
  return given(value) ? context.truth(value) : otherwise;
}

enum class Case : std::uint8_t { lower, upper };
/// Simple case mapping of every character; a text that is wholly the template's stays so.
Value change_case(Context& context, const Value& value, Case to);
char32_t map_case(char32_t character, Case to);
/// First character upper, the others lower.
Value capitalize(Context& context, const Value& value);
/// Byte ranges of lines, as str.splitlines has them.
std::vector<TextRange> split_lines(std::string_view text, bool keep_ends);
/// `value` without the characters of `set` (none: white space) at its ends.
Value strip(Context& context, const Value& value, const Value& set, bool left, bool right);
Value replace(Context& context, const Value& value, const Text& old, const Value& with, std::int64_t count);
/// `value` in the middle (or at a side) of `width` characters.
Value justify(Context& context, const Value& value, std::int64_t width, std::string_view fill, char align);
Value join(Context& context, const Value& separator, const std::vector<Value>& items, bool convert);

}  // namespace quipu::text::jinja
