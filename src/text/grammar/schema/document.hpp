// A JSON Schema document: where its subschemas are, what references mean, and well-formed keywords.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/error.hpp"
#include "text/jinja/jinja.hpp"

namespace quipu::text::grammar::schema {

using Data = jinja::Data;

/// Longest schema text, in bytes.
inline constexpr std::size_t kMaxSchema = std::size_t{4} << 20;

class Document {
 public:
  /// `what` names the schema in messages. Throws `Error` (invalid_argument, unsupported).
  Document(Data root, std::string what);

  const Data* root() const { return &root_; }
  /// The schema's draft is one before 2019-09: lists in `items`, nothing counts beside `$ref`.
  bool is_old() const { return old_; }
  /// The schema's draft is 4 or older: exclusiveMinimum is a flag.
  bool is_draft4() const { return draft4_; }

  /// Null when the schema is a boolean or has no such keyword.
  static const Data* find(const Data* schema, std::string_view keyword);
  static bool has(const Data* schema, std::string_view keyword) { return find(schema, keyword) != nullptr; }

  /// What a reference in `schema` points to. Throws `Error` (invalid_argument, unsupported).
  const Data* resolve(const Data* schema, std::string_view keyword, const std::string& reference);

  /// Registers a subschema with its path, and checks that it is an object or a boolean.
  const Data* child(const Data* schema, std::string_view keyword, const Data& value,
                    std::string_view name = {});
  std::string path(const Data* schema) const;
  /// A schema that does not stand in the document; `like` gives its path.
  const Data* invent(Data schema, const Data* like);
  /// What was invented for a schema and a purpose, so that it is one schema however often it is needed: only
  /// then do schemas that refer to themselves come to an end.
  std::map<std::pair<const Data*, std::string>, const Data*> inventions;

  /// Throws `Error` with the path of the keyword.
  [[noreturn]] void refuse(const Data* schema, std::string_view keyword, std::string_view why,
                           ErrorCode code = ErrorCode::unsupported) const;
  [[noreturn]] void malformed(const Data* schema, std::string_view keyword, std::string_view expected) const {
    refuse(schema, keyword, expected, ErrorCode::invalid_argument);
  }

  // Values of keywords, checked; nothing when absent.
  const Data::Mapping* mapping(const Data* schema, std::string_view keyword) const;
  const Data::List* list(const Data* schema, std::string_view keyword) const;
  std::optional<std::string> text(const Data* schema, std::string_view keyword) const;
  std::optional<bool> flag(const Data* schema, std::string_view keyword) const;
  std::vector<std::string> names(const Data* schema, std::string_view keyword) const;
  /// A whole number >= 0; beyond 32 bits: the largest.
  std::optional<std::uint32_t> count(const Data* schema, std::string_view keyword) const;

 private:
  void index(const Data& value, const std::string& base, int depth);
  const Data* pointer(std::string_view pointer) const;

  Data root_;
  std::string what_;
  bool old_ = false, draft4_ = false;
  std::unordered_map<const Data*, std::string> paths_;
  std::unordered_map<std::string, const Data*> ids_, anchors_;
  std::unordered_map<std::string, int> dynamic_anchors_;
  std::deque<Data> invented_;
};

}  // namespace quipu::text::grammar::schema
