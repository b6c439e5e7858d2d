// --json-schema, --grammar, --regex, --reasoning-budget.

#include "cli.hpp"
#include "core/error.hpp"
#include "flags.hpp"
#include "input.hpp"

namespace quipu::app {

void ConstraintFlags::add(CLI::App& app) {
  text_option(app, "--json-schema,--json-schema-file", json_schema,
              "answer in JSON of this schema: a file, or the schema itself when it starts with {");
  text_option(app, "--grammar,--grammar-file", grammar,
              "answer in the language of a GBNF grammar: a file, or the grammar itself when it holds ::=");
  text_option(app, "--regex", regex, "answer in a text that this regular expression matches as a whole");
  integer_option(app, "--reasoning-budget", reasoning_budget, {-1, 1 << 24},
                 "most tokens that a thinking model thinks before it answers; -1: no limit");
}

std::optional<text::grammar::Grammar> ConstraintFlags::grammar_asked_for() const {
  using text::grammar::Grammar;
  const int given = !json_schema.empty() + !grammar.empty() + !regex.empty();
  if (given > 1)
    fail(ErrorCode::invalid_argument, "--json-schema, --grammar and --regex exclude each other: give one");
  if (!regex.empty()) return Grammar::from_regex(regex);
  if (!grammar.empty())
    return Grammar::from_gbnf(grammar.find("::=") != std::string::npos ? grammar : read_text_file(grammar));
  if (!json_schema.empty()) {
    text::grammar::SchemaOptions options;
    options.declared_order = true;
    return Grammar::from_json_schema(json_schema.front() == '{' ? json_schema : read_text_file(json_schema),
                                     options);
  }
  return std::nullopt;
}

}  // namespace quipu::app
