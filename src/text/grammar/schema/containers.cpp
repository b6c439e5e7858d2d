// Objects and arrays.
#include <algorithm>
#include <set>

#include "core/error.hpp"
#include "text/grammar/pattern.hpp"
#include "text/grammar/schema/builder.hpp"

namespace quipu::text::grammar::schema {

namespace {

/// Name patterns of one object: every combination of them is a case of its own.
constexpr std::size_t kMaxNamePatterns = 5;
/// Values among which a list's items are told apart.
constexpr std::size_t kMaxDistinct = 10'000;
constexpr std::uint32_t kMostRequiredItems = 100'000;
constexpr std::size_t kMaxCounted = 200'000;
/// A new rule after so many properties, so that choices stay short.
constexpr std::size_t kPropertiesInRule = 16;

}  // namespace

// ---- objects ----

/// unevaluated… sees what the same schema's other keywords looked at: all parts of the alternative, as long
/// as nothing comes from outside.
void Builder::check_unevaluated(const Alternative& a, std::string_view keyword) const {
  for (const Data* part : a.parts) {
    if (!Document::has(part, keyword)) continue;
    if (building_ == nullptr || building_->size() != 1 || building_->front() != part)
      document_.refuse(part, keyword, "in this place is not supported");
  }
}

SchemaSet Builder::property_schemas(const SchemaSet& parts, const std::string& name) {
  SchemaSet result;
  bool evaluated = false;
  const Data* unevaluated = nullptr;
  for (const Data* part : parts) {
    bool named = false;
    if (const Data::Mapping* properties = document_.mapping(part, "properties")) {
      for (const auto& [key, schema] : *properties) {
        if (key != name) continue;
        named = true;
        result.push_back(document_.child(part, "properties", schema, key));
      }
    }
    if (const Data::Mapping* patterns = document_.mapping(part, "patternProperties")) {
      for (const auto& [pattern, schema] : *patterns) {
        if (!name_matches(part, pattern, name)) continue;
        named = true;
        result.push_back(document_.child(part, "patternProperties", schema, pattern));
      }
    }
    const Data* additional = Document::find(part, "additionalProperties");
    if (!named && additional != nullptr)
      result.push_back(document_.child(part, "additionalProperties", *additional));
    evaluated |= named || additional != nullptr;
    if (Document::has(part, "unevaluatedProperties")) unevaluated = part;
  }
  if (!evaluated && unevaluated != nullptr)
    result.push_back(document_.child(unevaluated, "unevaluatedProperties",
                                     *Document::find(unevaluated, "unevaluatedProperties")));
  return result;
}

bool Builder::name_allowed(const SchemaSet& parts, const std::string& name) {
  for (const Data* part : parts) {
    const Data* names = Document::find(part, "propertyNames");
    if (names == nullptr) continue;
    Alternatives alternatives(document_, [&](const Alternative& x) { return impossible(x); });
    bool any = false;
    for (const Alternative& x : alternatives.of({document_.child(part, "propertyNames", *names)})) {
      if ((x.types & type::string) == 0) continue;
      if (const auto values = constants(x)) {
        any |=
            std::any_of(values->begin(), values->end(), [&](const Data* v) { return equal(*v, Data(name)); });
      } else {
        any = any || accepts(store_, string_content(x), json_escaped(name));
      }
    }
    if (!any) return false;
  }
  return true;
}

Builder::Object Builder::object_of(const Alternative& a) {
  check_unevaluated(a, "unevaluatedProperties");
  Object object;
  std::set<std::string> known, required;
  for (const Data* part : a.parts) {
    for (std::string& name : document_.names(part, "required")) required.insert(std::move(name));
    object.least = std::max(object.least, document_.count(part, "minProperties").value_or(0));
    object.most = std::min(object.most, document_.count(part, "maxProperties").value_or(kUnbounded));
    if (object.least > kMostRequiredItems)
      document_.refuse(part, "minProperties",
                       fmt::format("asks for more than {} properties", kMostRequiredItems),
                       ErrorCode::invalid_argument);
  }
  const auto add = [&](const std::string& name) {
    if (!known.insert(name).second) return;
    Property property{name, property_schemas(a.parts, name), required.contains(name)};
    if (!name_allowed(a.parts, name)) property.schemas = {document_.invent(Data(false), a.parts.front())};
    object.properties.push_back(std::move(property));
  };
  for (const Data* part : a.parts) {
    if (const Data::Mapping* properties = document_.mapping(part, "properties"))
      for (const auto& [name, schema] : *properties) add(name);
  }
  for (const Data* part : a.parts)
    for (const std::string& name : document_.names(part, "required")) add(name);
  object.others = other_entries(a, object.properties);
  return object;
}

/// An entry with a name that is not declared: one case for every combination of name patterns.
Id Builder::other_entries(const Alternative& a, const std::vector<Property>& properties) {
  std::vector<std::string> patterns;
  for (const Data* part : a.parts) {
    if (const Data::Mapping* entries = document_.mapping(part, "patternProperties"))
      for (const auto& [pattern, schema] : *entries)
        if (std::find(patterns.begin(), patterns.end(), pattern) == patterns.end())
          patterns.push_back(pattern);
    if (patterns.size() > kMaxNamePatterns)
      document_.refuse(part, "patternProperties", fmt::format("has more than {} patterns", kMaxNamePatterns));
  }
  std::vector<Id> declared;
  for (const Property& property : properties) declared.push_back(store_.literal(json_escaped(property.name)));
  const Id free_name = store_.both(usual_.any_text(), store_.complement(store_.choice(std::move(declared))));

  std::vector<Id> names{free_name};
  for (const Data* part : a.parts) {
    const Data* limit = Document::find(part, "propertyNames");
    if (limit == nullptr) continue;
    Alternatives alternatives(document_, [&](const Alternative& x) { return impossible(x); });
    std::vector<Id> options;
    for (const Alternative& x : alternatives.of({document_.child(part, "propertyNames", *limit)})) {
      if ((x.types & type::string) == 0) continue;
      if (const auto values = constants(x)) {
        for (const Data* value : *values)
          if (const auto* text = std::get_if<Data::Text>(&value->value))
            options.push_back(store_.literal(json_escaped(text->bytes)));
      } else {
        options.push_back(string_content(x));
      }
    }
    names.push_back(store_.choice(std::move(options)));
  }

  std::vector<Id> compiled;
  for (const std::string& source : patterns) {
    const Data* owner = nullptr;
    for (const Data* part : a.parts)
      if (const Data::Mapping* entries = document_.mapping(part, "patternProperties"))
        for (const auto& [pattern, schema] : *entries)
          if (pattern == source) owner = part;
    try {
      compiled.push_back(pattern(usual_, source, Anchoring::anywhere));
    } catch (const Error& error) {
      document_.refuse(owner, "patternProperties", fmt::format("is not usable: {}", error.message()),
                       error.code());
    }
  }
  const Id quote = store_.byte('"');
  std::vector<Id> entries;
  const bool closed = !open_objects_ && std::any_of(a.parts.begin(), a.parts.end(), [](const Data* part) {
    return Document::has(part, "properties");
  });
  for (std::size_t mask = 0; mask < (std::size_t{1} << patterns.size()); ++mask) {
    SchemaSet schemas;
    bool evaluated = false;
    const Data* unevaluated = nullptr;
    for (const Data* part : a.parts) {
      bool named = false;
      if (const Data::Mapping* list = document_.mapping(part, "patternProperties")) {
        for (const auto& [source, schema] : *list) {
          const auto i = std::find(patterns.begin(), patterns.end(), source) - patterns.begin();
          if (((mask >> i) & 1) == 0) continue;
          named = true;
          schemas.push_back(document_.child(part, "patternProperties", schema, source));
        }
      }
      const Data* additional = Document::find(part, "additionalProperties");
      if (!named && additional != nullptr)
        schemas.push_back(document_.child(part, "additionalProperties", *additional));
      evaluated |= named || additional != nullptr;
      if (Document::has(part, "unevaluatedProperties")) unevaluated = part;
    }
    if (!evaluated && unevaluated != nullptr)
      schemas.push_back(document_.child(unevaluated, "unevaluatedProperties",
                                        *Document::find(unevaluated, "unevaluatedProperties")));
    if (impossible(schemas) || (closed && !evaluated && schemas.empty())) continue;
    std::vector<Id> limits = names;
    for (std::size_t i = 0; i < compiled.size(); ++i)
      limits.push_back(((mask >> i) & 1) != 0 ? compiled[i] : store_.complement(compiled[i]));
    const Id name = store_.lexeme(store_.concat({quote, store_.both(std::move(limits)), quote}));
    if (name != kNever)
      entries.push_back(store_.concat({name, store_.byte(':'), after_colon_, value(schemas)}));
  }
  return store_.choice(std::move(entries));
}

Id Builder::object(const Alternative& a) {
  for (const Data* schema : a.excluded) {
    const Data* one = Document::find(schema, "const");
    const Data::List* list = document_.list(schema, "enum");
    const auto container = [](const Data& d) { return d.value.index() >= 5; };
    if ((one != nullptr && container(*one)) ||
        (list != nullptr && std::any_of(list->begin(), list->end(), container)))
      document_.refuse(schema, "not", "excludes lists or objects, which is not supported");
  }
  const Object object = object_of(a);
  if (object.least > object.most) return kNever;
  return store_.concat(
      {store_.byte('{'), inside_, declared_order_ ? chain(object) : members(object), store_.byte('}')});
}

Id Builder::members(const Object& object) {
  Members members;
  for (const Property& property : object.properties) {
    const Id rest =
        impossible(property.schemas) ? kNever : store_.concat(after_colon_, value(property.schemas));
    members.entries.push_back({'"' + json_escaped(property.name) + "\":", rest, property.required});
  }
  members.others = object.others;
  members.comma = store_.concat(store_.byte(','), after_comma_);
  members.close = inside_;
  members.least = object.least;
  members.most = object.most;
  return store_.members(std::move(members));
}

/// The entries from each property on, by the number of those that came before it as far as that matters.
Id Builder::chain(const Object& object) {
  const Id comma = store_.concat(store_.byte(','), after_comma_);
  const bool counted = object.least > 1 || object.most != kUnbounded;
  const std::size_t declared = object.properties.size();
  const std::size_t limit =
      counted ? std::max<std::size_t>(
                    {object.least,
                     object.most == kUnbounded ? 0 : std::min<std::size_t>(object.most, declared + 1), 1})
              : 1;
  if (limit * (declared + 1) > kMaxCounted)
    fail(ErrorCode::unsupported, "an object with {} properties and counts up to {} is too large", declared,
         limit);
  const auto allowed = [&](std::size_t n) { return object.most == kUnbounded || n < object.most; };
  // After the declared ones.
  std::vector<Id> next(limit + 1, kNever);
  for (std::size_t n = 0; n <= limit; ++n) {
    const auto written = static_cast<std::uint32_t>(n);
    const std::uint32_t least = object.least > written ? object.least - written : 0;
    const std::uint32_t most = object.most == kUnbounded ? kUnbounded
                               : object.most > written   ? object.most - written
                                                         : 0;
    const Id close = n > 0 ? inside_ : kEmpty;
    next[n] = n > 0 ? store_.concat(store_.repeat(store_.concat(comma, object.others), least, most), close)
                    : list_of(object.others, store_.concat(comma, object.others), least, most);
  }
  for (std::size_t i = declared; i-- > 0;) {
    const Property& property = object.properties[i];
    const Id entry = impossible(property.schemas)
                         ? kNever
                         : store_.concat({store_.literal('"' + json_escaped(property.name) + "\":"),
                                          after_colon_, value(property.schemas)});
    std::vector<Id> here(limit + 1, kNever);
    for (std::size_t n = 0; n <= limit && n <= i + (counted ? 0 : 1); ++n) {
      const Id with =
          allowed(n) ? store_.concat({n > 0 ? comma : kEmpty, entry, next[std::min(n + 1, limit)]}) : kNever;
      here[n] = property.required ? with : store_.choice(with, next[n]);
      if (i % kPropertiesInRule == kPropertiesInRule - 1) {
        const std::uint32_t rule = store_.new_rule("properties");
        store_.set_rule(rule, here[n]);
        here[n] = store_.call(rule);
      }
    }
    next = std::move(here);
  }
  return next[0];
}

/// first (rest)*, closed by white space; nothing at all where `least` is 0.
Id Builder::list_of(Id first, Id rest, std::uint32_t least, std::uint32_t most) {
  if (most == 0) return least == 0 ? kEmpty : kNever;
  const std::uint32_t more = most == kUnbounded ? kUnbounded : most - 1;
  const Id some = store_.concat({first, store_.repeat(rest, least > 0 ? least - 1 : 0, more), inside_});
  return least == 0 ? store_.optional(some) : some;
}

// ---- arrays ----

Builder::Array Builder::array_of(const Alternative& a) {
  check_unevaluated(a, "unevaluatedItems");
  Array array;
  std::size_t longest = 0;
  const auto prefix = [&](const Data* part) -> const Data::List* {
    if (const Data::List* list = document_.list(part, "prefixItems")) return list;
    const Data* items = Document::find(part, "items");
    if (items == nullptr || !document_.is_old()) return nullptr;
    return std::get_if<Data::List>(&items->value);
  };
  for (const Data* part : a.parts) {
    if (const Data::List* list = prefix(part)) longest = std::max(longest, list->size());
    array.least = std::max(array.least, document_.count(part, "minItems").value_or(0));
    array.most = std::min(array.most, document_.count(part, "maxItems").value_or(kUnbounded));
    if (array.least > kMostRequiredItems)
      document_.refuse(part, "minItems", fmt::format("asks for more than {} items", kMostRequiredItems),
                       ErrorCode::invalid_argument);
  }
  array.first.resize(longest);
  for (const Data* part : a.parts) {
    const Data::List* list = prefix(part);
    const std::string_view list_name = Document::has(part, "prefixItems") ? "prefixItems" : "items";
    const std::string_view rest_name = list != nullptr && list_name == "items" ? "additionalItems" : "items";
    const Data* rest = Document::find(part, rest_name);
    if (rest == nullptr) {
      rest = Document::find(part, "unevaluatedItems");
      if (rest != nullptr && a.parts.size() > 1)
        document_.refuse(part, "unevaluatedItems", "beside other schemas is not supported");
      if (rest != nullptr) rest = document_.child(part, "unevaluatedItems", *rest);
    } else {
      rest = document_.child(part, rest_name, *rest);
    }
    for (std::size_t i = 0; i < longest; ++i) {
      if (list != nullptr && i < list->size())
        array.first[i].push_back(document_.child(part, list_name, (*list)[i], std::to_string(i)));
      else if (rest != nullptr)
        array.first[i].push_back(rest);
    }
    if (rest != nullptr) array.rest.push_back(rest);
  }
  return array;
}

Id Builder::array(const Alternative& a) {
  Array array = array_of(a);
  if (array.least > array.most) return kNever;
  for (const Data* part : a.parts) {
    if (document_.flag(part, "uniqueItems").value_or(false) && array.most > 1) return distinct(array, part);
  }
  for (const Data* part : a.parts) {
    if (Document::has(part, "contains")) return containing(a, array, part);
  }
  const Id comma = store_.concat(store_.byte(','), after_comma_);
  const auto prefixes = static_cast<std::uint32_t>(array.first.size());
  const std::uint32_t least = array.least > prefixes ? array.least - prefixes : 0;
  const std::uint32_t most = array.most == kUnbounded ? kUnbounded
                             : array.most > prefixes  ? array.most - prefixes
                                                      : 0;
  const Id item = most == 0 || impossible(array.rest) ? kNever : value(array.rest);
  const Id more = store_.concat(comma, item);
  if (prefixes == 0)
    return store_.concat({store_.byte('['), inside_, list_of(item, more, least, most), store_.byte(']')});
  Id rest = store_.concat(store_.repeat(more, least, most), inside_);
  for (std::uint32_t i = prefixes; i-- > 0;) {
    const bool possible = i < array.most && !impossible(array.first[i]);
    const Id with = possible ? store_.concat({i > 0 ? comma : kEmpty, value(array.first[i]), rest}) : kNever;
    const Id without = i >= array.least ? (i > 0 ? inside_ : kEmpty) : kNever;
    rest = store_.choice(with, without);
  }
  return store_.concat({store_.byte('['), inside_, rest, store_.byte(']')});
}

/// `contains`: some items fit, and with maxContains the others do not.
Id Builder::containing(const Alternative& a, const Array& array, const Data* part) {
  const std::uint32_t least = document_.count(part, "minContains").value_or(1);
  const std::uint32_t most = document_.count(part, "maxContains").value_or(kUnbounded);
  for (const Data* other : a.parts)
    if (other != part && Document::has(other, "contains"))
      document_.refuse(other, "contains", "beside another one is not supported");
  if (!array.first.empty() || array.most != kUnbounded || array.least > least)
    document_.refuse(part, "contains", "together with prefixItems, minItems or maxItems is not supported");
  if (least > kMostRequiredItems)
    document_.refuse(part, "minContains", "asks for too many items", ErrorCode::invalid_argument);
  if (least > most) return kNever;
  const Data* wanted = document_.child(part, "contains", *Document::find(part, "contains"));
  SchemaSet with = array.rest, without = array.rest;
  with.push_back(wanted);
  if (most != kUnbounded) {
    const Data*& made = document_.inventions[{wanted, "not"}];
    if (made == nullptr) made = document_.invent(Data::Mapping{{"not", *wanted}}, wanted);
    without.push_back(made);
  }
  const Id comma = store_.concat(store_.byte(','), after_comma_);
  const Id yes = value(with), no = value(without);
  // no* (yes no*){least,most}, with commas between; the first item is one or the other.
  const Id others = store_.repeat(store_.concat(comma, no), 0, kUnbounded);
  const Id group = store_.concat({comma, yes, others});
  const std::uint32_t more = most == kUnbounded ? kUnbounded : most > 0 ? most - 1 : 0;
  std::vector<Id> options{store_.concat({no, others, store_.repeat(group, least, most)})};
  if (most > 0)
    options.push_back(store_.concat({yes, others, store_.repeat(group, least > 0 ? least - 1 : 0, more)}));
  Id list = store_.concat(store_.choice(std::move(options)), inside_);
  if (least == 0 && array.least == 0) list = store_.optional(list);
  return store_.concat({store_.byte('['), inside_, list, store_.byte(']')});
}

/// `uniqueItems` where the items are among a few constants.
Id Builder::distinct(const Array& array, const Data* part) {
  const auto refuse = [&] {
    document_.refuse(
        part, "uniqueItems",
        fmt::format("is supported for at most one item, or items from an enum of {} scalars or less",
                    kMaxDistinct));
  };
  if (!array.first.empty()) refuse();
  Alternatives alternatives(document_, [&](const Alternative& x) { return impossible(x); });
  std::set<std::string> values;
  for (const Alternative& x : alternatives.of(array.rest)) {
    const auto list = constants(x);
    if (!list && (x.types & ~(type::null | type::boolean)) == 0 && x.excluded.empty()) {
      if (x.types & type::null) values.insert("null");
      if (x.types & type::boolean) values.insert({"false", "true"});
      continue;
    }
    if (!list) refuse();
    for (const Data* value : *list) {
      if (value->value.index() >= 5) refuse();
      values.insert(constant_text(*value));
    }
  }
  if (values.size() > kMaxDistinct) refuse();
  Members members;
  for (const std::string& text : values) members.entries.push_back({text, kEmpty, false});
  members.comma = store_.concat(store_.byte(','), after_comma_);
  members.close = inside_;
  members.least = array.least;
  members.most = array.most;
  return store_.concat({store_.byte('['), inside_, store_.members(std::move(members)), store_.byte(']')});
}

}  // namespace quipu::text::grammar::schema
