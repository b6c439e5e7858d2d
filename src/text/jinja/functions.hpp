// The tables of filters, tests, methods and global functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.hpp"

namespace quipu::text::jinja {

class Context;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// A function of the language. `parameters` lists its names, separated by spaces, optional ones with `?`;
/// when called, `positional` has one value for each, absent ones being `absent()`. "*": any arguments, as
/// given.
struct Native {
  std::string_view name;
  Value (*function)(Context& context, const Value& self, Arguments& arguments);
  std::string_view parameters = "";
};

struct FilterEntry : Native {};
struct TestEntry {
  std::string_view name;
  bool (*function)(Context& context, const Value& self, Arguments& arguments);
  std::string_view parameters = "";
};

/// nullptr when there is none of this name.
const FilterEntry* find_filter(std::string_view name);
const TestEntry* find_test(std::string_view name);
const Native* find_method(Kind kind, std::string_view name);
const Native* find_global(std::string_view name);
/// Methods that would change a list or mapping.
bool is_forbidden_method(Kind kind, std::string_view name);

inline Value absent() { return Value::undefined(-2); }
inline bool given(const Value& value) { return !value.is(Kind::undefined) || value.undefined_name() != -2; }

}  // namespace quipu::text::jinja
