#include "text/grammar/schema/alternatives.hpp"

#include <algorithm>
#include <array>

namespace quipu::text::grammar::schema {

namespace {

/// More alternatives than this are refused.
constexpr std::size_t kMaxAlternatives = 256;
/// Combinators and references inside of each other, without a value between them.
constexpr int kMaxNesting = 60;

using List = std::vector<Alternative>;

/// Both at once; nothing when the types have nothing in common.
std::optional<Alternative> merged(const Alternative& x, const Alternative& y) {
  Alternative result = x;
  result.types = x.types & y.types;
  if (result.types == 0) return std::nullopt;
  result.integer |= y.integer;
  result.fraction |= y.fraction;
  const auto add = [](auto& to, const auto& from) {
    for (const auto& item : from)
      if (std::find(to.begin(), to.end(), item) == to.end()) to.push_back(item);
  };
  add(result.parts, y.parts);
  add(result.allowed, y.allowed);
  add(result.excluded, y.excluded);
  add(result.refused, y.refused);
  return result;
}

void append(List& to, List from) {
  for (Alternative& item : from) {
    // Most differ in the last schema that they have.
    const auto same = [&](const Alternative& other) {
      return other.parts.size() == item.parts.size() &&
             (item.parts.empty() || other.parts.back() == item.parts.back()) && other == item;
    };
    if (std::none_of(to.begin(), to.end(), same)) to.push_back(std::move(item));
  }
}

Alternative of_types(std::uint8_t types) {
  Alternative result;
  result.types = types;
  return result;
}

}  // namespace

/// Counts how deep combinators are nested, and sees references that lead to themselves.
class Alternatives::Nesting {
 public:
  Nesting(Alternatives& owner, const Data* schema) : owner_(owner) {
    auto& open = owner.expanding_;
    if (std::find(open.begin(), open.end(), schema) != open.end())
      owner.document_.refuse(schema, "", "refers to itself without a value between",
                             ErrorCode::invalid_argument);
    if (open.size() > kMaxNesting)
      owner.document_.refuse(schema, "", fmt::format("nests combinators deeper than {}", kMaxNesting));
    open.push_back(schema);
  }
  ~Nesting() { owner_.expanding_.pop_back(); }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Alternatives& owner_;
};

List Alternatives::of(const SchemaSet& schemas) {
  List result{Alternative()};
  for (const Data* schema : schemas) result = cross(schema, result, expand(schema));
  return result;
}

List Alternatives::cross(const Data* schema, const List& x, const List& y) {
  List result;
  for (const Alternative& a : x) {
    for (const Alternative& b : y) {
      std::optional<Alternative> both = merged(a, b);
      if (!both) continue;
      const bool worth = x.size() * y.size() > 1;
      if (worth && impossible_(*both)) continue;
      append(result, {std::move(*both)});
      if (result.size() > kMaxAlternatives)
        document_.refuse(schema, "",
                         fmt::format("has more than {} combinations of its alternatives", kMaxAlternatives));
    }
  }
  return result;
}

void Alternatives::check_keywords(const Data* schema) {
  if (!checked_.insert(schema).second) return;
  // What has no meaning here that could be held.
  for (const std::string_view keyword : {"$recursiveRef", "unevaluatedItems", "extends", "disallow"}) {
    if (!Document::has(schema, keyword)) continue;
    if (keyword == "unevaluatedItems") continue;  // looked at where arrays are built
    document_.refuse(schema, keyword, "is not supported");
  }
}

List Alternatives::expand(const Data* schema) {
  if (const bool* flag = std::get_if<bool>(&schema->value)) return *flag ? List{Alternative()} : List();
  const Nesting nesting(*this, schema);
  check_keywords(schema);
  const std::optional<std::string> reference = document_.text(schema, "$ref");
  if (reference && document_.is_old()) return expand(document_.resolve(schema, "$ref", *reference));
  List result = base(schema);
  for (const std::string_view keyword : {"$ref", "$dynamicRef"}) {
    if (const auto target = document_.text(schema, keyword))
      result = cross(schema, result, expand(document_.resolve(schema, keyword, *target)));
  }
  if (const Data::List* all = document_.list(schema, "allOf")) {
    if (all->empty()) document_.malformed(schema, "allOf", "is empty");
    for (std::size_t i = 0; i < all->size(); ++i)
      result = cross(schema, result, expand(document_.child(schema, "allOf", (*all)[i], std::to_string(i))));
  }
  if (Document::has(schema, "anyOf")) result = cross(schema, result, branches(schema, "anyOf", false));
  if (Document::has(schema, "if")) result = cross(schema, result, conditional(schema));
  result = cross(schema, result, dependencies(schema));
  if (const Data* no = Document::find(schema, "not"))
    result = cross(schema, result, negated(document_.child(schema, "not", *no)));
  if (Document::has(schema, "oneOf")) result = cross(schema, result, one_of(schema, result));
  return result;
}

std::uint8_t Alternatives::types_of(const Data* schema, const Data& value, bool& integer) const {
  struct Name {
    std::string_view name;
    std::uint8_t bit;
  };
  constexpr std::array<Name, 6> kNames{{{"null", type::null},
                                        {"boolean", type::boolean},
                                        {"number", type::number},
                                        {"string", type::string},
                                        {"array", type::array},
                                        {"object", type::object}}};
  Data::List one{value};
  const auto* list = std::get_if<Data::List>(&value.value);
  if (list == nullptr) list = &one;
  if (list->empty()) document_.malformed(schema, "type", "is an empty list");
  std::uint8_t types = 0;
  bool whole = false;
  for (const Data& item : *list) {
    const auto* text = std::get_if<Data::Text>(&item.value);
    if (text == nullptr) document_.malformed(schema, "type", "is neither a name nor a list of names");
    if (text->bytes == "integer") {
      whole = true;
      continue;
    }
    if (document_.is_old() && text->bytes == "any") {
      types = type::all;
      continue;
    }
    const auto it =
        std::find_if(kNames.begin(), kNames.end(), [&](const Name& n) { return n.name == text->bytes; });
    if (it == kNames.end())
      document_.malformed(schema, "type", fmt::format("\"{}\" is no type", printable(text->bytes, 40)));
    types |= it->bit;
  }
  integer = whole && (types & type::number) == 0;
  return whole ? types | type::number : types;
}

List Alternatives::base(const Data* schema) {
  Alternative result;
  result.parts.push_back(schema);
  if (const Data* value = Document::find(schema, "type"))
    result.types = types_of(schema, *value, result.integer);
  if (Document::has(schema, "enum") || Document::has(schema, "const")) {
    document_.list(schema, "enum");
    result.allowed.push_back(schema);
  }
  return {result};
}

List Alternatives::branches(const Data* schema, std::string_view keyword, bool negative) {
  const Data::List* list = document_.list(schema, keyword);
  if (list->empty()) document_.malformed(schema, keyword, "is empty");
  List result;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Data* branch = document_.child(schema, keyword, (*list)[i], std::to_string(i));
    append(result, negative ? negated(branch) : expand(branch));
    if (result.size() > kMaxAlternatives)
      document_.refuse(schema, keyword, fmt::format("has more than {} alternatives", kMaxAlternatives));
  }
  return result;
}

List Alternatives::one_of(const Data* schema, const List& context) {
  const Data::List* list = document_.list(schema, "oneOf");
  if (list->empty()) document_.malformed(schema, "oneOf", "is empty");
  std::vector<const Data*> schemas;
  std::vector<List> options;
  for (std::size_t i = 0; i < list->size(); ++i) {
    schemas.push_back(document_.child(schema, "oneOf", (*list)[i], std::to_string(i)));
    options.push_back(cross(schema, context, expand(schemas.back())));
  }
  const auto disjoint = [&](const List& x, const List& y) {
    for (const Alternative& a : x)
      for (const Alternative& b : y) {
        const std::optional<Alternative> both = merged(a, b);
        if (both && !impossible_(*both)) return false;
      }
    return true;
  };
  List result;
  for (std::size_t i = 0; i < options.size(); ++i) {
    List exactly = options[i];
    for (std::size_t j = 0; j < options.size(); ++j) {
      if (i == j || disjoint(options[i], options[j])) continue;
      try {
        exactly = cross(schema, exactly, negated(schemas[j]));
      } catch (const Error& error) {
        document_.refuse(
            schema, "oneOf",
            fmt::format("has branches {} and {} that may hold at once, which cannot be ruled out "
                        "({})",
                        i, j, error.message()));
      }
    }
    append(result, std::move(exactly));
  }
  return result;
}

List Alternatives::conditional(const Data* schema) {
  const Data* test = document_.child(schema, "if", *Document::find(schema, "if"));
  List result;
  const auto consequence = [&](std::string_view keyword) {
    const Data* value = Document::find(schema, keyword);
    return value == nullptr ? List{Alternative()} : expand(document_.child(schema, keyword, *value));
  };
  if (!Document::has(schema, "then") && !Document::has(schema, "else")) return {Alternative()};
  append(result, cross(schema, expand(test), consequence("then")));
  append(result, cross(schema, negated(test), consequence("else")));
  return result;
}

/// An object without the property, and no other type.
const Data* Alternatives::without(const Data* schema, const std::string& name) {
  const Data*& made = document_.inventions[{schema, "-" + name}];
  if (made == nullptr)
    made = document_.invent(
        Data::Mapping{{"type", "object"}, {"properties", Data::Mapping{{name, Data(false)}}}}, schema);
  return made;
}

/// An object with the properties.
const Data* Alternatives::with(const Data* schema, const std::vector<std::string>& names) {
  std::string key = "+";
  Data::List list;
  for (const std::string& name : names) {
    key += name + '\0';
    list.emplace_back(name);
  }
  const Data*& made = document_.inventions[{schema, key}];
  if (made == nullptr)
    made = document_.invent(Data::Mapping{{"type", "object"}, {"required", std::move(list)}}, schema);
  return made;
}

List Alternatives::dependencies(const Data* schema) {
  List result{Alternative()};
  const auto imply = [&](const std::string& name, List consequence) {
    List options{of_types(type::all & ~type::object)};
    append(options, expand(without(schema, name)));
    append(options, cross(schema, expand(with(schema, {name})), consequence));
    result = cross(schema, result, options);
  };
  for (const std::string_view keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const Data::Mapping* entries = document_.mapping(schema, keyword);
    if (entries == nullptr) continue;
    for (const auto& [name, value] : *entries) {
      if (const auto* list = std::get_if<Data::List>(&value.value)) {
        std::vector<std::string> names;
        for (const Data& item : *list) {
          const auto* text = std::get_if<Data::Text>(&item.value);
          if (text == nullptr) document_.malformed(schema, keyword, "holds something that is no name");
          names.push_back(text->bytes);
        }
        imply(name, expand(with(schema, names)));
      } else {
        imply(name, expand(document_.child(schema, keyword, value, name)));
      }
    }
  }
  return result;
}

// ---- negation ----

List Alternatives::negated(const Data* schema) {
  if (const bool* flag = std::get_if<bool>(&schema->value)) return *flag ? List() : List{Alternative()};
  const Nesting nesting(*this, schema);
  List result;
  for (const auto& [keyword, value] : std::get<Data::Mapping>(schema->value))
    append(result, negated_keyword(schema, keyword, value));
  return result;
}

/// The values that break one keyword.
List Alternatives::negated_keyword(const Data* schema, const std::string& keyword, const Data& value) {
  constexpr std::array<std::string_view, 24> kAnnotations{"title",
                                                          "description",
                                                          "default",
                                                          "examples",
                                                          "$comment",
                                                          "$schema",
                                                          "$id",
                                                          "$anchor",
                                                          "$defs",
                                                          "definitions",
                                                          "deprecated",
                                                          "readOnly",
                                                          "writeOnly",
                                                          "id",
                                                          "then",
                                                          "else",
                                                          "contentSchema",
                                                          "contentEncoding",
                                                          "contentMediaType",
                                                          "example",
                                                          "minContains",
                                                          "maxContains",
                                                          "additionalItems",
                                                          "$vocabulary"};
  if (std::find(kAnnotations.begin(), kAnnotations.end(), keyword) != kAnnotations.end()) return {};
  if (keyword == "type") {
    bool integer = false;
    const std::uint8_t types = types_of(schema, value, integer);
    Alternative rest = of_types(type::all & ~types);
    List result;
    if (rest.types != 0) result.push_back(rest);
    if (integer) {
      rest.types = type::number;
      rest.fraction = true;
      result.push_back(rest);
    }
    return result;
  }
  if (keyword == "enum" || keyword == "const") {
    Alternative other;
    const Data*& made = document_.inventions[{schema, "=" + keyword}];
    if (made == nullptr) made = document_.invent(Data::Mapping{{keyword, value}}, schema);
    other.excluded.push_back(made);
    return {other};
  }
  if (keyword == "required") {
    List result;
    for (const std::string& name : document_.names(schema, keyword))
      append(result, expand(without(schema, name)));
    return result;
  }
  if (keyword == "properties") {
    List result;
    for (const auto& [name, property] : *document_.mapping(schema, keyword)) {
      const Data*& made = document_.inventions[{schema, "!" + name}];
      if (made == nullptr)
        made = document_.invent(
            Data::Mapping{{"type", "object"},
                          {"required", Data::List{Data(name)}},
                          {"properties", Data::Mapping{{name, Data(Data::Mapping{{"not", property}})}}}},
            schema);
      append(result, expand(made));
    }
    return result;
  }
  if (keyword == "pattern" || keyword == "format") {
    Alternative other = of_types(type::string);
    other.refused.emplace_back(schema, keyword);
    return {other};
  }
  const auto invert = [&](std::uint8_t kind, std::string_view opposite, Data limit) {
    const Data*& made = document_.inventions[{schema, "~" + keyword}];
    if (made == nullptr)
      made = document_.invent(Data::Mapping{{std::string(opposite), std::move(limit)}}, schema);
    Alternative other = of_types(kind);
    other.parts.push_back(made);
    return List{other};
  };
  if (keyword == "minimum") return invert(type::number, "exclusiveMaximum", value);
  if (keyword == "maximum") return invert(type::number, "exclusiveMinimum", value);
  if (keyword == "exclusiveMinimum" && !document_.is_draft4()) return invert(type::number, "maximum", value);
  if (keyword == "exclusiveMaximum" && !document_.is_draft4()) return invert(type::number, "minimum", value);
  const auto counted = [&](std::uint8_t kind, std::string_view least, std::string_view most) -> List {
    const std::int64_t count = *document_.count(schema, keyword);
    if (keyword == least) return count == 0 ? List() : invert(kind, most, Data(count - 1));
    return invert(kind, least, Data(count + 1));
  };
  if (keyword == "minLength" || keyword == "maxLength")
    return counted(type::string, "minLength", "maxLength");
  if (keyword == "minItems" || keyword == "maxItems") return counted(type::array, "minItems", "maxItems");
  if (keyword == "minProperties" || keyword == "maxProperties")
    return counted(type::object, "minProperties", "maxProperties");
  if (keyword == "not") return expand(document_.child(schema, keyword, value));
  if (keyword == "allOf") return branches(schema, keyword, true);
  if (keyword == "anyOf") {
    List result{Alternative()};
    const Data::List* list = document_.list(schema, keyword);
    for (std::size_t i = 0; i < list->size(); ++i)
      result =
          cross(schema, result, negated(document_.child(schema, keyword, (*list)[i], std::to_string(i))));
    return result;
  }
  if (keyword == "$ref") {
    const auto target = document_.text(schema, keyword);
    return negated(document_.resolve(schema, keyword, *target));
  }
  if (keyword == "items" && !std::holds_alternative<Data::List>(value.value) &&
      !Document::has(schema, "prefixItems")) {
    // Some item does not fit.
    const Data*& made = document_.inventions[{schema, "!items"}];
    if (made == nullptr)
      made = document_.invent(
          Data::Mapping{{"type", "array"}, {"contains", Data(Data::Mapping{{"not", value}})}}, schema);
    return expand(made);
  }
  constexpr std::array<std::string_view, 16> kHard{"oneOf",
                                                   "if",
                                                   "items",
                                                   "prefixItems",
                                                   "contains",
                                                   "uniqueItems",
                                                   "multipleOf",
                                                   "$dynamicRef",
                                                   "patternProperties",
                                                   "additionalProperties",
                                                   "propertyNames",
                                                   "dependentRequired",
                                                   "dependentSchemas",
                                                   "dependencies",
                                                   "unevaluatedProperties",
                                                   "unevaluatedItems"};
  if (std::find(kHard.begin(), kHard.end(), keyword) != kHard.end() ||
      (document_.is_draft4() && keyword.starts_with("exclusive")))
    document_.refuse(schema, keyword, "cannot be negated");
  return {};  // an annotation that is not known
}

}  // namespace quipu::text::grammar::schema
