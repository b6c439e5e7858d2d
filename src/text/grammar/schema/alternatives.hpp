// A schema as a list of alternatives, each without combinators: what a value of each type must fulfil.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "text/grammar/schema/document.hpp"

namespace quipu::text::grammar::schema {

/// Schemas that a value must fulfil together, in the order in which they were met.
using SchemaSet = std::vector<const Data*>;

namespace type {
inline constexpr std::uint8_t null = 1, boolean = 2, number = 4, string = 8, array = 16, object = 32,
                              all = 63;
}

struct Alternative {
  std::uint8_t types = type::all;
  bool integer = false;   ///< numbers: whole ones only
  bool fraction = false;  ///< numbers: only those that are not whole
  /// Schemas of which the keywords for numbers, strings, arrays and objects apply.
  SchemaSet parts;
  /// Schemas whose `enum` or `const` lists the only values (all of them at once) …
  SchemaSet allowed;
  /// … and those whose lists are excluded.
  SchemaSet excluded;
  /// Patterns and formats that a string must not match: schema and keyword.
  std::vector<std::pair<const Data*, std::string>> refused;

  bool operator==(const Alternative&) const = default;
};

/// Works out the alternatives of schemas. Knows nothing of expressions: `impossible` says whether no value
/// fulfils an alternative, as far as that is known.
class Alternatives {
 public:
  using Impossible = std::function<bool(const Alternative&)>;
  Alternatives(Document& document, Impossible impossible)
      : document_(document), impossible_(std::move(impossible)) {}

  /// Throws `Error` for keywords that cannot be held, with their path.
  std::vector<Alternative> of(const SchemaSet& schemas);

 private:
  std::vector<Alternative> expand(const Data* schema);
  std::vector<Alternative> base(const Data* schema);
  std::vector<Alternative> one_of(const Data* schema, const std::vector<Alternative>& context);
  std::vector<Alternative> conditional(const Data* schema);
  std::vector<Alternative> dependencies(const Data* schema);
  std::vector<Alternative> negated(const Data* schema);
  std::vector<Alternative> negated_keyword(const Data* schema, const std::string& keyword, const Data& value);
  std::vector<Alternative> cross(const Data* schema, const std::vector<Alternative>& x,
                                 const std::vector<Alternative>& y);
  std::vector<Alternative> branches(const Data* schema, std::string_view keyword, bool negative);
  std::vector<Alternative> negated_condition(const Data* schema, std::string_view keyword);
  std::uint8_t types_of(const Data* schema, const Data& value, bool& integer) const;
  const Data* without(const Data* schema, const std::string& name);
  const Data* with(const Data* schema, const std::vector<std::string>& names);
  void check_keywords(const Data* schema);
  class Nesting;

  Document& document_;
  Impossible impossible_;
  std::vector<const Data*> expanding_;
  std::set<const Data*> checked_;
  int depth_ = 0;
};

}  // namespace quipu::text::grammar::schema
