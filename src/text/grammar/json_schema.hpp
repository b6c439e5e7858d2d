// JSON Schema (draft 2020-12) as expressions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/expression.hpp"
#include "text/jinja/jinja.hpp"

namespace quipu::text::grammar {

struct SchemaOptions {
  /// White space between tokens: one space, or up to two line ends with up to 20 spaces or tabs. False: none.
  bool white_space = true;
  bool one_line = false;  ///< white space is a space after a comma or a colon, and nothing else
  /// Without additionalProperties, other properties than those declared may come, as the specification has
  /// it. False: objects that declare properties have no others.
  bool open_objects = true;
  /// Properties in the order in which they are declared, then those only in `required`, then others: what a
  /// generation is held to. False: in any order.
  bool declared_order = false;
  bool object = false;  ///< the value is an object, whatever the schema allows
  /// What error messages call the schema, such as "the parameters of the tool \"f\"".
  std::string what = "the JSON schema";
};

/// The JSON texts that are valid under a schema; strings with JSON's escapes. Numbers, white space and
/// nesting are bounded so that a text always comes to its end. Throws `Error` (invalid_argument, unsupported)
/// that names the path in the schema and the keyword: what cannot be held is refused, nothing is left aside
/// in silence.
Id json_schema(Store& store, std::string_view schema, const SchemaOptions& options);
/// The same from a value that was read already; null stands for an object without properties.
Id json_schema(Store& store, const jinja::Data& schema, const SchemaOptions& options);

/// One of some texts, byte for byte.
Id one_of_texts(Store& store, std::vector<std::string> texts);

}  // namespace quipu::text::grammar
