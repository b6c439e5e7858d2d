// Single values of JSON as expressions: numbers within limits, strings, constants.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/grammar/code_points.hpp"
#include "text/grammar/schema/document.hpp"

namespace quipu::text::grammar::schema {

/// A decimal number, exact.
struct Decimal {
  bool negative = false;
  std::string whole = "0";  ///< digits without leading zeros
  std::string fraction;     ///< digits without trailing zeros

  /// From the shortest text that gives the double.
  static Decimal of(const Data& number);
  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

/// Most digits before and after the point: numbers always come to an end.
inline constexpr std::uint32_t kMaxDigits = 32;

struct Bound {
  Decimal value;
  bool exclusive = false;
};

/// JSON numbers without limits: exponents are allowed, values stay in the range of a double.
Id any_number(Store& store);
/// Whole numbers as digits, without exponent or point.
Id any_integer(Store& store);
/// Numbers as digits, perhaps with a point, without exponent.
Id plain_number(Store& store);
/// With any exponent where the bound is zero, else without.
Id at_least(Store& store, const Bound& bound);
Id at_most(Store& store, const Bound& bound);
/// Plain numbers that are multiples of a positive value; nothing when it is too fine or too large to count.
std::optional<Id> multiple_of(Store& store, const Decimal& value);

/// Texts of a format (without the quotes) by name; nothing for names that no draft of JSON Schema defines.
/// The pattern is empty for a format that is defined but cannot be held.
std::optional<std::string_view> format_pattern(std::string_view name);

/// The usual JSON text of a value; `space` goes where white space may be.
Id constant(Store& store, const Data& value, Id space_after_comma, Id space_after_colon, Id space_inside);
/// The usual JSON text of a value, without white space.
std::string constant_text(const Data& value);
bool equal(const Data& x, const Data& y);

}  // namespace quipu::text::grammar::schema
