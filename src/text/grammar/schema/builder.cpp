// Schemas to rules, constants and scalars.
#include "text/grammar/schema/builder.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.hpp"
#include "text/grammar/pattern.hpp"

namespace quipu::text::grammar::schema {

namespace {

/// A string must have so many characters at most for a text to come to its end.
constexpr std::uint32_t kMostRequiredCharacters = 1'000'000;
/// Alternatives of one schema that are looked at so closely: a bound on the time.
constexpr int kMostTests = 3000;
/// Schemas that are built inside of each other.
constexpr int kMostNested = 400;
/// How deep values inside of values are looked at to see that nothing fits.
constexpr int kTestDepth = 3;

constexpr std::array<std::string_view, 33> kKeywords{"type",
                                                     "enum",
                                                     "const",
                                                     "properties",
                                                     "required",
                                                     "additionalProperties",
                                                     "patternProperties",
                                                     "propertyNames",
                                                     "minProperties",
                                                     "maxProperties",
                                                     "items",
                                                     "prefixItems",
                                                     "minItems",
                                                     "maxItems",
                                                     "contains",
                                                     "uniqueItems",
                                                     "minLength",
                                                     "maxLength",
                                                     "pattern",
                                                     "format",
                                                     "minimum",
                                                     "maximum",
                                                     "exclusiveMinimum",
                                                     "exclusiveMaximum",
                                                     "multipleOf",
                                                     "anyOf",
                                                     "oneOf",
                                                     "allOf",
                                                     "not",
                                                     "if",
                                                     "$ref",
                                                     "$dynamicRef",
                                                     "unevaluatedProperties"};

}  // namespace

bool accepts(const Store& store, Id id, std::string_view text) {
  Store copy;
  std::vector<Id> map(store.size(), Store::kUnknown);
  Id state = copy.import(store, id, map);
  copy.freeze();
  for (const char c : text) state = copy.derive(state, copy.symbol(static_cast<unsigned char>(c)));
  return copy.nullable(state);
}

Builder::Builder(Store& store, Document& document, const SchemaOptions& options)
    : store_(store),
      document_(document),
      full_(store, Encoding::json),
      usual_(store, Encoding::json_usual),
      inside_(kEmpty),
      after_comma_(kEmpty),
      after_colon_(kEmpty),
      open_objects_(options.open_objects),
      declared_order_(options.declared_order) {
  if (!options.white_space) return;
  const Id space = store.byte(' '), line = store.byte('\n');
  if (options.one_line) {
    after_comma_ = after_colon_ = store.optional(space);
    return;
  }
  const Id indent = store.repeat(store.bytes(ByteSet::one(' ') | ByteSet::one('\t')), 0, 20);
  inside_ = after_comma_ = store.choice({kEmpty, space, store.concat(store.repeat(line, 1, 2), indent)});
  after_colon_ = store.optional(space);
}

/// Says nothing about values.
bool Builder::is_trivial(const Data* schema) {
  if (const bool* flag = std::get_if<bool>(&schema->value)) return *flag;
  const auto& mapping = std::get<Data::Mapping>(schema->value);
  return std::none_of(mapping.begin(), mapping.end(), [](const auto& entry) {
    return std::find(kKeywords.begin(), kKeywords.end(), entry.first) != kKeywords.end() ||
           entry.first.starts_with("depend") || entry.first.starts_with("unevaluated") ||
           entry.first.starts_with("$rec");
  });
}

Id Builder::value(SchemaSet schemas) {
  SchemaSet set;
  for (const Data* schema : schemas)
    if (!is_trivial(schema) && std::find(set.begin(), set.end(), schema) == set.end()) set.push_back(schema);
  const auto [it, fresh] = rules_.emplace(set, 0);
  if (!fresh) return store_.call(it->second);
  const std::uint32_t rule = store_.new_rule(set.empty() ? "any value" : document_.path(set.front()));
  it->second = rule;
  if (++nesting_ > kMostNested)
    fail(ErrorCode::unsupported, "{} leads to values that nest deeper than {} levels",
         document_.path(set.front()), kMostNested);
  store_.set_rule(rule, body(it->first));
  --nesting_;
  return store_.call(rule);
}

Id Builder::body(const SchemaSet& schemas) {
  const SchemaSet* const outer = std::exchange(building_, &schemas);
  Alternatives alternatives(document_, [&](const Alternative& a) { return impossible(a); });
  std::vector<Id> parts;
  for (const Alternative& a : alternatives.of(schemas)) {
    building_ = &schemas;
    parts.push_back(alternative(a));
  }
  building_ = outer;
  return store_.choice(std::move(parts));
}

Id Builder::alternative(const Alternative& a) {
  std::vector<Id> parts;
  if (const auto values = constants(a)) {
    std::vector<Id> scalars;
    for (const Data* value : *values) {
      const Id id = constant(store_, *value, after_comma_, after_colon_, inside_);
      const bool container = std::holds_alternative<Data::List>(value->value) ||
                             std::holds_alternative<Data::Mapping>(value->value);
      (container ? parts : scalars).push_back(id);
    }
    parts.push_back(store_.choice(std::move(scalars)));
    return store_.choice(std::move(parts));
  }
  const auto literal = [&](std::string_view text, Data value) {
    if (!is_excluded(a, value)) parts.push_back(store_.literal(text));
  };
  if (a.types & type::null) literal("null", Data());
  if (a.types & type::boolean) {
    literal("true", Data(true));
    literal("false", Data(false));
  }
  if (a.types & type::number) parts.push_back(number(a));
  if (a.types & type::string) parts.push_back(string(a));
  if (a.types & type::array) parts.push_back(array(a));
  if (a.types & type::object) parts.push_back(object(a));
  return store_.choice(std::move(parts));
}

// ---- what cannot be ----

bool Builder::impossible(const Alternative& a) {
  if (++tests_ > kMostTests) return false;  // what is not told apart then is refused where it must be
  try {
    if (const auto values = constants(a)) return values->empty();
    if ((a.types & type::null) && !is_excluded(a, Data())) return false;
    if ((a.types & type::boolean) && !(is_excluded(a, Data(true)) && is_excluded(a, Data(false))))
      return false;
    if ((a.types & type::number) && number(a) != kNever) return false;
    if ((a.types & type::string) && string(a) != kNever) return false;
    if ((a.types & type::array) && !impossible_array(a)) return false;
    if ((a.types & type::object) && !impossible_object(a)) return false;
    return true;
  } catch (const Error&) {
    return false;  // said where the value is built
  }
}

bool Builder::impossible(const SchemaSet& schemas) {
  for (const Data* schema : schemas)
    if (const bool* flag = std::get_if<bool>(&schema->value); flag != nullptr && !*flag) return true;
  const auto [it, fresh] = impossible_.emplace(schemas, false);
  if (!fresh) return it->second;
  if (testing_ >= kTestDepth) {
    impossible_.erase(it);
    return false;
  }
  ++testing_;
  bool result = false;
  try {
    Alternatives alternatives(document_, [&](const Alternative& a) { return impossible(a); });
    const std::vector<Alternative> list = alternatives.of(schemas);
    result = std::all_of(list.begin(), list.end(), [&](const Alternative& a) { return impossible(a); });
  } catch (const Error&) {
  }
  --testing_;
  return impossible_[schemas] = result;
}

bool Builder::impossible_object(const Alternative& a) {
  for (const Data* part : a.parts) {
    for (const std::string& name : document_.names(part, "required"))
      if (impossible(property_schemas(a.parts, name))) return true;
  }
  std::uint32_t least = 0, most = kUnbounded;
  for (const Data* part : a.parts) {
    least = std::max(least, document_.count(part, "minProperties").value_or(0));
    most = std::min(most, document_.count(part, "maxProperties").value_or(kUnbounded));
  }
  return least > most;
}

bool Builder::impossible_array(const Alternative& a) {
  const Array array = array_of(a);
  if (array.least > array.most) return true;
  for (std::size_t i = 0; i < array.first.size() && i < array.least; ++i)
    if (impossible(array.first[i])) return true;
  return array.least > array.first.size() && impossible(array.rest);
}

// ---- constants ----

bool Builder::is_excluded(const Alternative& a, const Data& value) const {
  for (const Data* schema : a.excluded) {
    if (const Data* one = Document::find(schema, "const"); one != nullptr && equal(*one, value)) return true;
    if (const Data::List* list = document_.list(schema, "enum"))
      if (std::any_of(list->begin(), list->end(), [&](const Data& item) { return equal(item, value); }))
        return true;
  }
  return false;
}

std::optional<std::vector<const Data*>> Builder::constants(const Alternative& a) {
  if (a.allowed.empty()) return std::nullopt;
  std::vector<std::vector<const Data*>> lists;
  for (const Data* schema : a.allowed) {
    if (const Data* one = Document::find(schema, "const")) lists.push_back({one});
    if (const Data::List* list = document_.list(schema, "enum")) {
      lists.emplace_back();
      for (const Data& item : *list) lists.back().push_back(&item);
    }
  }
  std::vector<const Data*> result;
  for (const Data* candidate : lists.front()) {
    const bool in_all = std::all_of(lists.begin() + 1, lists.end(), [&](const auto& list) {
      return std::any_of(list.begin(), list.end(),
                         [&](const Data* item) { return equal(*item, *candidate); });
    });
    if (in_all && !is_excluded(a, *candidate) && fits(a, *candidate)) result.push_back(candidate);
  }
  return result;
}

/// Whether a constant fulfils the rest of the alternative.
bool Builder::fits(const Alternative& a, const Data& value) {
  const std::array<std::uint8_t, 7> types{type::null,   type::boolean, type::number, type::number,
                                          type::string, type::array,   type::object};
  const std::uint8_t kind = types[value.value.index()];
  if ((a.types & kind) == 0) return false;
  Alternative others = a;
  others.allowed.clear();
  const auto limited = [&](std::initializer_list<std::string_view> keywords) {
    const Data* found = nullptr;
    for (const Data* part : a.parts)
      for (const std::string_view keyword : keywords)
        if (Document::has(part, keyword)) found = part;
    return found;
  };
  if (kind == type::number) {
    const bool whole = Decimal::of(value).fraction.empty();
    if ((a.integer && !whole) || (a.fraction && whole)) return false;
    if (limited({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}) == nullptr)
      return true;
    others.integer = others.fraction = false;
    return accepts(store_, number(others), constant_text(value));
  }
  if (kind == type::string) {
    if (limited({"minLength", "maxLength", "pattern", "format"}) == nullptr && a.refused.empty()) return true;
    return accepts(store_, string(others), constant_text(value));
  }
  const Data* part = nullptr;
  if (kind == type::array)
    part = limited({"items", "prefixItems", "minItems", "maxItems", "contains", "uniqueItems"});
  if (kind == type::object)
    part = limited({"properties", "required", "additionalProperties", "patternProperties", "minProperties",
                    "maxProperties", "propertyNames", "unevaluatedProperties"});
  if (part != nullptr)
    document_.refuse(part, "", "limits the lists or objects of an enum or const, which is not supported");
  return true;
}

// ---- scalars ----

Id Builder::number(const Alternative& a, bool with_excluded) {
  std::vector<Id> limits;
  bool signs = true;  // all limits are ones of the sign
  const auto limit = [&](Id (&side)(Store&, const Bound&), const Bound& bound) {
    signs = signs && bound.value.is_zero();
    limits.push_back(side(store_, bound));
  };
  const auto numeric = [&](const Data* part, std::string_view keyword) -> const Data* {
    const Data* found = Document::find(part, keyword);
    if (found == nullptr) return nullptr;
    if (!std::holds_alternative<std::int64_t>(found->value) && !std::holds_alternative<double>(found->value))
      document_.malformed(part, keyword, "is no number");
    return found;
  };
  for (const Data* part : a.parts) {
    bool exclusive_minimum = false, exclusive_maximum = false;
    if (document_.is_draft4()) {
      exclusive_minimum = document_.flag(part, "exclusiveMinimum").value_or(false);
      exclusive_maximum = document_.flag(part, "exclusiveMaximum").value_or(false);
    } else {
      if (const Data* n = numeric(part, "exclusiveMinimum")) limit(at_least, {Decimal::of(*n), true});
      if (const Data* n = numeric(part, "exclusiveMaximum")) limit(at_most, {Decimal::of(*n), true});
    }
    if (const Data* n = numeric(part, "minimum")) limit(at_least, {Decimal::of(*n), exclusive_minimum});
    if (const Data* n = numeric(part, "maximum")) limit(at_most, {Decimal::of(*n), exclusive_maximum});
    if (const Data* n = numeric(part, "multipleOf")) {
      const Decimal step = Decimal::of(*n);
      if (step.negative || step.is_zero()) document_.malformed(part, "multipleOf", "is not above 0");
      const std::optional<Id> multiples = multiple_of(store_, step);
      if (!multiples) document_.refuse(part, "multipleOf", "is too fine or too large to be held");
      limits.push_back(*multiples);
      signs = false;
    }
  }
  if (with_excluded) {
    for (const Data* schema : a.excluded) {
      std::vector<const Data*> values;
      if (const Data* one = Document::find(schema, "const")) values.push_back(one);
      if (const Data::List* list = document_.list(schema, "enum"))
        for (const Data& item : *list) values.push_back(&item);
      for (const Data* value : values) {
        if (value->value.index() != 2 && value->value.index() != 3) continue;
        const Id zeros = store_.repeat(store_.byte('0'), 0, kUnbounded);
        const bool point = constant_text(*value).find('.') != std::string::npos;
        signs = false;
        limits.push_back(store_.complement(
            store_.concat(store_.literal(constant_text(*value)),
                          point ? zeros : store_.optional(store_.concat(store_.byte('.'), zeros)))));
      }
    }
  }
  if (a.fraction) {
    if (a.integer) return kNever;
    signs = false;
    const Id zeros = store_.repeat(store_.byte('0'), 0, kUnbounded);
    limits.push_back(store_.complement(
        store_.concat(any_integer(store_), store_.optional(store_.concat(store_.byte('.'), zeros)))));
  }
  const Id shape = a.integer ? any_integer(store_) : signs ? any_number(store_) : plain_number(store_);
  limits.push_back(shape);
  return store_.lexeme(store_.both(std::move(limits)));
}

/// The texts that `pattern` or `format` of a schema allows.
Id Builder::pattern_of(const Data* schema, const std::string& keyword) {
  const std::optional<std::string> text = document_.text(schema, keyword);
  const std::string key = keyword + ':' + *text;
  if (const auto it = patterns_.find(key); it != patterns_.end()) return it->second;
  Id id = kNever;
  if (keyword == "format") {
    const auto known = format_pattern(*text);
    if (!known) {
      id = usual_.any_text();  // an annotation
    } else if (known->empty()) {
      document_.refuse(schema, "format", fmt::format("\"{}\" cannot be held", printable(*text, 40)));
    } else {
      id = pattern(usual_, *known, Anchoring::whole);
    }
  } else {
    try {
      id = pattern(usual_, *text, Anchoring::anywhere);
    } catch (const Error& error) {
      document_.refuse(schema, keyword, fmt::format("is not usable: {}", error.message()), error.code());
    }
  }
  return patterns_[key] = id;
}

Id Builder::string_content(const Alternative& a) {
  std::uint32_t least = 0, most = kUnbounded;
  std::vector<Id> limits;
  for (const Data* part : a.parts) {
    const std::uint32_t low = document_.count(part, "minLength").value_or(0);
    if (low > kMostRequiredCharacters)
      document_.refuse(part, "minLength",
                       fmt::format("asks for more than {} characters", kMostRequiredCharacters),
                       ErrorCode::invalid_argument);
    least = std::max(least, low);
    most = std::min(most, document_.count(part, "maxLength").value_or(kUnbounded));
    if (Document::has(part, "pattern")) limits.push_back(pattern_of(part, "pattern"));
    if (const auto format = document_.text(part, "format"); format && format_pattern(*format))
      limits.push_back(pattern_of(part, "format"));
  }
  if (least > most) return kNever;
  bool usual = !limits.empty();
  for (const auto& [schema, keyword] : a.refused) {
    usual = true;
    limits.push_back(store_.complement(pattern_of(schema, keyword)));
  }
  const auto exclude = [&](const Data& value) {
    const auto* text = std::get_if<Data::Text>(&value.value);
    if (text == nullptr) return;
    usual = true;
    limits.push_back(store_.complement(store_.literal(json_escaped(text->bytes))));
  };
  for (const Data* schema : a.excluded) {
    if (const Data* one = Document::find(schema, "const")) exclude(*one);
    if (const Data::List* list = document_.list(schema, "enum"))
      for (const Data& item : *list) exclude(item);
  }
  Encoder& encoder = usual ? usual_ : full_;
  limits.push_back(store_.repeat(encoder.any(), least, most));
  return store_.both(std::move(limits));
}

Id Builder::string(const Alternative& a) {
  const Id quote = store_.byte('"');
  const Id whole = store_.concat({quote, string_content(a), quote});
  try {
    return store_.lexeme(whole);
  } catch (const Error& error) {
    for (const Data* part : a.parts)
      for (const std::string_view keyword : {"pattern", "format"})
        if (Document::has(part, keyword)) document_.refuse(part, keyword, error.message(), error.code());
    for (const auto& [schema, keyword] : a.refused)
      document_.refuse(schema, keyword, error.message(), error.code());
    throw;
  }
}

bool Builder::name_matches(const Data* schema, const std::string& source, const std::string& name) {
  const auto [it, fresh] = name_matches_.emplace(std::pair(source, name), false);
  if (!fresh) return it->second;
  try {
    Store scratch;
    Encoder encoder(scratch, Encoding::utf8);
    const Id id = pattern(encoder, source, Anchoring::anywhere);
    it->second = accepts(scratch, id, name);
  } catch (const Error& error) {
    document_.refuse(schema, "patternProperties", fmt::format("is not usable: {}", error.message()),
                     error.code());
  }
  return it->second;
}

}  // namespace quipu::text::grammar::schema
