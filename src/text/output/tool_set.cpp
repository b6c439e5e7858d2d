#include "text/output/tool_set.hpp"

namespace quipu::text {

using jinja::Data;

namespace {

using Texts = ToolSet::Texts;

Texts both(Texts a, Texts b) { return a == b ? a : Texts::sometimes; }

Texts texts_of_type(const std::string& type) { return type == "string" ? Texts::always : Texts::never; }

/// What the keywords type, enum, const, anyOf and oneOf say; other ways to say it count as unknown.
Texts texts_in(const Data& schema, int depth) {
  if (depth > 20) return Texts::unknown;
  if (const Data* type = find_member(schema, "type")) {
    if (const std::string* one = text_of(*type)) return texts_of_type(*one);
    if (const auto* list = std::get_if<Data::List>(&type->value); list != nullptr && !list->empty()) {
      std::vector<Texts> kinds;
      for (const Data& item : *list)
        if (const std::string* one = text_of(item)) kinds.push_back(texts_of_type(*one));
      if (kinds.empty()) return Texts::unknown;
      for (const Texts kind : kinds) kinds[0] = both(kinds[0], kind);
      return kinds[0];
    }
  }
  if (const Data* constant = find_member(schema, "const"))
    return text_of(*constant) != nullptr ? Texts::always : Texts::never;
  const auto over = [&](const char* key, auto&& kind_of) -> Texts {
    const Data* value = find_member(schema, key);
    const auto* list = value == nullptr ? nullptr : std::get_if<Data::List>(&value->value);
    if (list == nullptr || list->empty()) return Texts::unknown;
    Texts result = kind_of(list->front());
    for (const Data& item : *list) result = both(result, kind_of(item));
    return result;
  };
  const Texts listed =
      over("enum", [](const Data& item) { return text_of(item) != nullptr ? Texts::always : Texts::never; });
  if (listed != Texts::unknown) return listed;
  for (const char* key : {"anyOf", "oneOf"}) {
    const Texts any = over(key, [&](const Data& item) { return texts_in(item, depth + 1); });
    if (any != Texts::unknown) return any;
  }
  return Texts::unknown;
}

}  // namespace

ToolSet::ToolSet(std::span<const Tool> tools) {
  for (const Tool& tool : tools) {
    Entry entry{tool.name, {}, tool.parameters};
    const Data* properties = find_member(tool.parameters, "properties");
    if (const auto* list = properties == nullptr ? nullptr : std::get_if<Data::Mapping>(&properties->value))
      for (const auto& [name, schema] : *list) entry.parameters.emplace_back(name, texts_of(schema));
    tools_.push_back(std::move(entry));
  }
}

const ToolSet::Entry* ToolSet::find(std::string_view tool) const {
  for (const Entry& entry : tools_)
    if (entry.name == tool) return &entry;
  return nullptr;
}

const Data* ToolSet::schema(std::string_view tool) const {
  const Entry* entry = find(tool);
  return entry == nullptr ? nullptr : &entry->schema;
}

ToolSet::Texts ToolSet::texts_of(const Data& schema) { return texts_in(schema, 0); }

ToolSet::Texts ToolSet::texts(std::string_view tool, std::string_view parameter) const {
  if (const Entry* entry = find(tool))
    for (const auto& [name, texts] : entry->parameters)
      if (name == parameter) return texts;
  return Texts::unknown;
}

std::vector<std::string> ToolSet::parameters(std::string_view tool) const {
  std::vector<std::string> names;
  if (const Entry* entry = find(tool))
    for (const auto& [name, texts] : entry->parameters) names.push_back(name);
  return names;
}

}  // namespace quipu::text
