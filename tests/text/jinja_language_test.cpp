// The language, point by point, against Python's Jinja2 (tools/goldens/make_jinja_goldens.py).
#include <gtest/gtest.h>

#include "golden_clock.hpp"
#include "shared_vectors.hpp"
#include "text/jinja/jinja.hpp"

namespace quipu {
namespace {

using text::jinja::Data;
using text::jinja::Template;
using text::jinja::TemplateError;

const Data* find_member_of(const Data& object, std::string_view key) {
  for (const auto& [name, value] : std::get<Data::Mapping>(object.value))
    if (name == key) return &value;
  return nullptr;
}
const std::string& text_of(const Data* value) { return std::get<Data::Text>(value->value).bytes; }

std::string_view kind_name(TemplateError::Kind kind) {
  switch (kind) {
    case TemplateError::Kind::syntax:
      return "syntax";
    case TemplateError::Kind::raised:
      return "raised";
    case TemplateError::Kind::undefined:
      return "undefined";
    case TemplateError::Kind::security:
      return "security";
    case TemplateError::Kind::type:
      return "type";
    case TemplateError::Kind::limit:
      return "type";  // a range too long is Python's OverflowError
  }
  return "";
}

TEST(JinjaLanguage, EveryPointIsAsInPython) {
  const auto path = test::source_path("tests/goldens/text/jinja.json");
  const Data golden = text::jinja::parse_json(test::read_file(path), "jinja.json");
  const auto& variables = std::get<Data::Mapping>(find_member_of(golden, "variables")->value);
  int outputs = 0;
  int errors = 0;
  for (const Data& item : std::get<Data::List>(find_member_of(golden, "cases")->value)) {
    const std::string& source = text_of(find_member_of(item, "template"));
    const Data* output = find_member_of(item, "output");
    try {
      const text::Rendered rendered = Template(source).render(variables, {}, test::golden_clock);
      if (output == nullptr) {
        ADD_FAILURE() << source << ": rendered as " << rendered.text << ", expected an error of kind "
                      << text_of(find_member_of(item, "error"));
        continue;
      }
      ++outputs;
      EXPECT_EQ(rendered.text, text_of(output)) << source;
    } catch (const TemplateError& error) {
      if (output != nullptr) {
        ADD_FAILURE() << source << ": " << error.message();
        continue;
      }
      ++errors;
      EXPECT_EQ(kind_name(error.kind()), text_of(find_member_of(item, "error")))
          << source << ": " << error.message();
      if (const Data* message = find_member_of(item, "message")) {
        EXPECT_EQ(error.detail(), text_of(message));
      }
    }
  }
  EXPECT_GT(outputs, 60);
  EXPECT_GT(errors, 60);
}

}  // namespace
}  // namespace quipu
