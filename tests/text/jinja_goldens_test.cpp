// The shared renderings of Hugging Face's chat templates by Python's Jinja2, byte for byte, errors as errors.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <map>

#include "golden_clock.hpp"
#include "shared_vectors.hpp"
#include "text/jinja/jinja.hpp"

namespace quipu {
namespace {

namespace json = boost::json;
using text::jinja::Data;
using text::jinja::Template;
using text::jinja::TemplateError;

const Data& member(const Data& object, std::string_view key) {
  static const Data none;
  for (const auto& [name, value] : std::get<Data::Mapping>(object.value))
    if (name == key) return value;
  return none;
}
const std::string& text_of(const Data& value) { return std::get<Data::Text>(value.value).bytes; }

Data read(const std::filesystem::path& path) {
  return text::jinja::parse_json(test::read_file(path), path.string());
}

Data tools_of(const Data& conversation, const Data& all) {
  const Data& names = member(conversation, "tools");
  if (!std::holds_alternative<Data::List>(names.value)) return Data();
  Data::List tools;
  for (const Data& name : std::get<Data::List>(names.value)) tools.push_back(member(all, text_of(name)));
  return tools;
}

struct Tally {
  int outputs = 0, errors = 0, security = 0;
};

void check(const Template& compiled, const Template::Variables& variables, const Data& golden,
           const std::string& where, Tally& tally) {
  const Data& output = member(golden, "output");
  const Data& error = member(golden, "error");
  try {
    const text::Rendered rendered = compiled.render(variables, {}, test::golden_clock);
    if (std::holds_alternative<Data::Text>(output.value)) {
      ++tally.outputs;
      EXPECT_EQ(rendered.text, text_of(output)) << where;
    } else {
      ADD_FAILURE() << where << ": rendered, expected " << text_of(member(error, "kind")) << ": "
                    << text_of(member(error, "message"));
    }
  } catch (const TemplateError& thrown) {
    if (std::holds_alternative<Data::Text>(output.value)) {
      ADD_FAILURE() << where << ": " << thrown.message();
      return;
    }
    ++tally.errors;
    const std::string& kind = text_of(member(error, "kind"));
    EXPECT_EQ(kind == "raise_exception", thrown.kind() == TemplateError::Kind::raised)
        << where << thrown.message();
    EXPECT_EQ(kind == "security", thrown.kind() == TemplateError::Kind::security)
        << where << thrown.message();
    EXPECT_EQ(kind == "recursion", thrown.kind() == TemplateError::Kind::limit) << where << thrown.message();
    if (kind == "raise_exception") {
      EXPECT_EQ(thrown.detail(), text_of(member(error, "message"))) << where;
    }
  }
}

TEST(JinjaGoldens, EverySharedTemplateRendersAsInPython) {
  const auto folder = test::shared_data() / "chat";
  QUIPU_REQUIRE_SHARED(folder);
  const Data data = read(folder / "conversations.json");
  std::map<std::string, const Data*> conversations;
  for (const Data& conversation : std::get<Data::List>(member(data, "conversations").value))
    conversations[text_of(member(conversation, "name"))] = &conversation;
  Tally tally;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "templates")) {
    const std::string name = entry.path().stem().string();
    const Template compiled(test::read_file(entry.path()));
    const Data goldens = read(folder / "goldens" / (name + ".json"));
    for (const Data& golden : std::get<Data::List>(goldens.value)) {
      const Data& conversation = *conversations.at(text_of(member(golden, "conversation")));
      Template::Variables variables = std::get<Data::Mapping>(member(golden, "kwargs").value);
      variables.emplace_back("messages", member(conversation, "messages"));
      variables.emplace_back("tools", tools_of(conversation, member(data, "tools")));
      variables.emplace_back("documents", member(conversation, "documents"));
      check(compiled, variables, golden,
            name + ", " + text_of(member(golden, "conversation")) + ", " +
                text_of(member(golden, "variant")) + ": ",
            tally);
    }
  }
  EXPECT_EQ(tally.outputs, 3540);
  EXPECT_EQ(tally.errors, 520);
}

}  // namespace
}  // namespace quipu
