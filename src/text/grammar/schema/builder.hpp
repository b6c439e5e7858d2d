// Alternatives to expressions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/grammar/code_points.hpp"
#include "text/grammar/json_schema.hpp"
#include "text/grammar/schema/alternatives.hpp"
#include "text/grammar/schema/document.hpp"
#include "text/grammar/schema/values.hpp"

namespace quipu::text::grammar::schema {

class Builder {
 public:
  Builder(Store& store, Document& document, const SchemaOptions& options);

  /// A value that fulfils all of the schemas; a call of a rule.
  Id value(SchemaSet schemas);

 private:
  /// What the keywords of several schemas say about an object's properties.
  struct Property {
    std::string name;
    SchemaSet schemas;
    bool required = false;
  };
  struct Object {
    std::vector<Property> properties;
    std::uint32_t least = 0, most = kUnbounded;
    Id others = kNever;  ///< one further entry
  };
  struct Array {
    std::vector<SchemaSet> first;
    SchemaSet rest;
    std::uint32_t least = 0, most = kUnbounded;
  };

  Id body(const SchemaSet& schemas);
  Id alternative(const Alternative& alternative);
  bool impossible(const Alternative& alternative);
  bool impossible(const SchemaSet& schemas);
  bool impossible_object(const Alternative& alternative);
  bool impossible_array(const Alternative& alternative);

  // Constants.
  std::optional<std::vector<const Data*>> constants(const Alternative& alternative);
  bool is_excluded(const Alternative& alternative, const Data& value) const;
  bool fits(const Alternative& alternative, const Data& value);

  // Scalars; kNever when nothing fits.
  Id number(const Alternative& alternative, bool with_excluded = true);
  Id string(const Alternative& alternative);
  Id string_content(const Alternative& alternative);
  Id pattern_of(const Data* schema, const std::string& keyword);
  bool name_matches(const Data* schema, const std::string& pattern, const std::string& name);

  // Containers.
  Object object_of(const Alternative& alternative);
  SchemaSet property_schemas(const SchemaSet& parts, const std::string& name);
  Id other_entries(const Alternative& alternative, const std::vector<Property>& properties);
  Id object(const Alternative& alternative);
  Id chain(const Object& object);
  Id members(const Object& object);
  Array array_of(const Alternative& alternative);
  Id array(const Alternative& alternative);
  Id containing(const Alternative& alternative, const Array& array, const Data* part);
  Id distinct(const Array& array, const Data* part);
  bool name_allowed(const SchemaSet& parts, const std::string& name);
  void check_unevaluated(const Alternative& alternative, std::string_view keyword) const;

  static bool is_trivial(const Data* schema);
  Id list_of(Id first, Id rest, std::uint32_t least, std::uint32_t most);

  Store& store_;
  Document& document_;
  Encoder full_, usual_;
  Id inside_, after_comma_, after_colon_;
  bool open_objects_, declared_order_;
  std::map<SchemaSet, std::uint32_t> rules_;
  std::map<SchemaSet, bool> impossible_;
  std::map<std::pair<std::string, std::string>, bool> name_matches_;
  std::map<std::string, Id> patterns_;
  const SchemaSet* building_ = nullptr;
  int testing_ = 0;  ///< depth of the recursion
  int tests_ = 0;
  int nesting_ = 0;
};

/// Whether a regular expression of a store has the text.
bool accepts(const Store& store, Id id, std::string_view text);

}  // namespace quipu::text::grammar::schema
