#include "text/grammar/json_schema.hpp"

#include "core/error.hpp"
#include "text/grammar/schema/builder.hpp"

namespace quipu::text::grammar {

namespace {

/// Whether a schema without a type describes an object and nothing else.
bool means_object(const schema::Data* root) {
  using schema::Document;
  for (const std::string_view keyword :
       {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "$dynamicRef", "not", "if", "items",
        "prefixItems", "pattern", "minLength", "maxLength", "minimum", "maximum"})
    if (Document::has(root, keyword)) return false;
  return Document::has(root, "properties") || Document::has(root, "required");
}

}  // namespace

Id json_schema(Store& store, std::string_view source, const SchemaOptions& options) {
  if (source.size() > schema::kMaxSchema)
    fail(ErrorCode::unsupported, "{} has {} bytes, at most {} are possible", options.what, source.size(),
         schema::kMaxSchema);
  return json_schema(store, jinja::parse_json(source, options.what), options);
}

Id json_schema(Store& store, const jinja::Data& source, const SchemaOptions& options) {
  using schema::Data;
  const bool none = std::holds_alternative<std::nullptr_t>(source.value) && options.object;
  schema::Document document(none ? Data(Data::Mapping{{"properties", Data::Mapping{}}}) : source,
                            options.what);
  schema::Builder builder(store, document, options);
  schema::SchemaSet root{document.root()};
  if (options.object || means_object(document.root()))
    root.push_back(document.invent(Data::Mapping{{"type", "object"}}, document.root()));
  return builder.value(root);
}

Id one_of_texts(Store& store, std::vector<std::string> texts) {
  std::vector<Id> ids;
  for (const std::string& text : texts) ids.push_back(store.literal(text));
  return store.choice(std::move(ids));
}

}  // namespace quipu::text::grammar
