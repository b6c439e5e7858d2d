// Forced and lazily forced tool calls.
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "text/grammar/small_tables.hpp"
#include "text/grammar/tool_grammar.hpp"

namespace quipu::text::grammar {
namespace {

Tool tool(std::string name, std::string_view parameters) {
  Tool result;
  result.name = std::move(name);
  if (!parameters.empty()) result.parameters = jinja::parse_json(parameters, "parameters");
  return result;
}

const std::vector<Tool>& weather_tools() {
  static const std::vector<Tool> tools{
      tool("weather", R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer",
                          "minimum":1,"maximum":9}},"required":["city"]})"),
      tool("now", R"({"type":"object","properties":{}})"), tool("stop", "")};
  return tools;
}

OutputFormat hermes() {
  OutputFormat format;
  format.family = "test";
  format.calls = {{.call = "<tool_call>\n{\"name\": \"{name}\", \"arguments\": {arguments}}\n</tool_call>",
                   .separator = "\n"}};
  return format;
}

/// Reads characters, and control tokens written as their names.
bool reads(const Grammar& grammar, std::string_view text, const std::vector<std::string>& controls = {}) {
  const auto table = test::byte_table({}, controls);
  Matcher matcher(std::make_shared<Constraint>(grammar, table));
  while (!text.empty()) {
    Token token = static_cast<unsigned char>(text.front());
    std::size_t length = 1;
    for (const std::string& name : controls) {
      if (text.substr(0, name.size()) != name) continue;
      token = *table->find_control(name);
      length = name.size();
    }
    if (!matcher.accept(token)) return false;
    text.remove_prefix(length);
  }
  return matcher.is_accepting();
}

TEST(ToolGrammar, RequiredIsOneOrMoreCallsOfAnyTool) {
  const Grammar grammar = *tool_grammar(weather_tools(), hermes(), {}).grammar;
  const std::string now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const std::string oslo =
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}}\n</tool_call>";
  EXPECT_TRUE(reads(grammar, now));
  EXPECT_TRUE(reads(grammar, oslo));
  EXPECT_TRUE(reads(grammar, oslo + "\n" + now));
  EXPECT_TRUE(reads(grammar, "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(reads(grammar, "Hello"));
  EXPECT_FALSE(reads(grammar, ""));
  EXPECT_FALSE(reads(grammar, "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(reads(grammar, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(reads(grammar, "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1}}\n</tool_call>"));
}

TEST(ToolGrammar, NamedIsOneCallOfThatTool) {
  ToolGrammarOptions options;
  options.choice = ToolChoice::named;
  options.name = "now";
  const Grammar grammar = *tool_grammar(weather_tools(), hermes(), options).grammar;
  const std::string now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  EXPECT_TRUE(reads(grammar, now));
  EXPECT_FALSE(reads(grammar, now + "\n" + now));
  EXPECT_FALSE(reads(grammar, "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>"));
  options.name = "never";
  EXPECT_THROW(tool_grammar(weather_tools(), hermes(), options), Error);
}

TEST(ToolGrammar, AutomaticIsFreeUntilACallBegins) {
  ToolGrammarOptions options;
  options.choice = ToolChoice::automatic;
  const Grammar grammar = *tool_grammar(weather_tools(), hermes(), options).grammar;
  EXPECT_TRUE(reads(grammar, "Just text, <tool_cal > {"));
  EXPECT_TRUE(reads(grammar, ""));
  EXPECT_TRUE(
      reads(grammar, "Let me see. <tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(reads(grammar, "Let me see. <tool_call>\n{\"name\": \"no"));
  EXPECT_FALSE(reads(grammar, "<tool_call> I am just talking"));
}

TEST(ToolGrammar, ControlTokensAreTokens) {
  OutputFormat format = hermes();
  format.calls = {{.section_open = "[TOOL_CALLS]", .call = "{name}[ARGS]{arguments}"}};
  ToolGrammarOptions options;
  options.controls = {"[TOOL_CALLS]", "[ARGS]"};
  const Grammar forced = *tool_grammar(weather_tools(), format, options).grammar;
  EXPECT_TRUE(reads(forced, "[TOOL_CALLS]now[ARGS]{}", options.controls));
  EXPECT_FALSE(reads(forced, "[TOOL_CALLS]now[ARGS]{}"));  // spelled
  options.choice = ToolChoice::automatic;
  const Grammar lazy = *tool_grammar(weather_tools(), format, options).grammar;
  EXPECT_TRUE(reads(lazy, "see [TOOL_CALLS]now[ARGS]{}", options.controls));
  EXPECT_TRUE(reads(lazy, "see [TOOL_CALLS]now", {}));
  EXPECT_FALSE(reads(lazy, "see [TOOL_CALLS]later[ARGS]{}", options.controls));
}

TEST(ToolGrammar, ParametersAsElements) {
  OutputFormat format = hermes();
  format.calls = {{.section_open = "<tool_call>\n",
                   .section_close = "\n</tool_call>",
                   .call = "<function={name}>\n{arguments}</function>",
                   .separator = "\n",
                   .arguments = ArgumentSyntax::xml,
                   .parameter = "<parameter={key}>\n{value}\n</parameter>\n"}};
  const Grammar grammar = *tool_grammar(weather_tools(), format, {}).grammar;
  EXPECT_TRUE(reads(grammar,
                    "<tool_call>\n<function=weather>\n<parameter=city>\nNew \"York\" <b>\n</parameter>\n"
                    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"));
  EXPECT_TRUE(reads(grammar, "<tool_call>\n<function=now>\n</function>\n</tool_call>"));
  EXPECT_FALSE(reads(grammar,
                     "<tool_call>\n<function=weather>\n<parameter=days>\n3\n</parameter>\n</function>\n"
                     "</tool_call>"));
  EXPECT_FALSE(reads(grammar,
                     "<tool_call>\n<function=weather>\n<parameter=city>\nX\n</parameter>\n"
                     "<parameter=days>\nthree\n</parameter>\n</function>\n</tool_call>"));
}

TEST(ToolGrammar, EveryFamilyHasAForcedCall) {
  for (const auto& format : output_formats()) {
    SCOPED_TRACE(format->family);
    if (format->calls.empty()) continue;
    for (const ToolChoice choice : {ToolChoice::required, ToolChoice::named, ToolChoice::automatic}) {
      ToolGrammarOptions options;
      options.choice = choice;
      options.name = "weather";
      const ToolGrammar result = tool_grammar(weather_tools(), *format, options);
      EXPECT_TRUE(result.problems.empty());
      EXPECT_TRUE(choice == ToolChoice::automatic || result.grammar.has_value());
      if (result.grammar)
        Matcher(std::make_shared<Constraint>(*result.grammar, test::byte_table())).allowed();
    }
  }
}

TEST(ToolGrammar, ABadToolIsNamedAndTheOthersWork) {
  std::vector<Tool> tools;
  for (int i = 0; i < 60; ++i)
    tools.push_back(
        tool("tool" + std::to_string(i), R"({"type":"object","properties":{"x":{"type":"integer"}}})"));
  tools[17] = tool("broken", R"({"type":"object","properties":{"o":{"type":"object","properties":
                                 {"s":{"type":"string","minLength":2000000}}}}})");
  tools[18] = tool("impossible", R"({"type":"object","properties":{"x":false},"required":["x"]})");
  const ToolGrammar result = tool_grammar(tools, hermes(), {});
  ASSERT_EQ(result.problems.size(), 2u);
  EXPECT_EQ(result.problems[0].tool, "broken");
  EXPECT_NE(result.problems[0].message.find("\"broken\""), std::string::npos) << result.problems[0].message;
  EXPECT_NE(result.problems[0].message.find("#/properties/o/properties/s/minLength"), std::string::npos)
      << result.problems[0].message;
  EXPECT_NE(result.problems[1].message.find("\"impossible\""), std::string::npos)
      << result.problems[1].message;
  const auto call = [](const std::string& name) {
    return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": {\"x\": 1}}\n</tool_call>";
  };
  EXPECT_TRUE(reads(*result.grammar, call("tool59")));
  EXPECT_FALSE(reads(*result.grammar, call("broken")));
  ToolGrammarOptions named;
  named.choice = ToolChoice::named;
  named.name = "broken";
  EXPECT_THROW(tool_grammar(tools, hermes(), named), Error);
}

TEST(ToolGrammar, CallsComeAfterTheReasoning) {
  ToolGrammarOptions options;
  options.thinking = Thinking::possible;
  const std::string now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const Grammar grammar = *tool_grammar(weather_tools(), hermes(), options).grammar;
  EXPECT_TRUE(reads(grammar, now));
  EXPECT_TRUE(reads(grammar, "<think>Which one? <tool_call></think>\n\n" + now));
  EXPECT_FALSE(reads(grammar, "<think>Which one?</think>\n\nNone."));
  EXPECT_FALSE(reads(grammar, "<think>Which one?"));
  const Grammar schema =
      after_reasoning(Grammar::from_json_schema(R"({"type":"integer"})"), {}, Thinking::opened, 0, {});
  EXPECT_TRUE(reads(schema, "some thoughts</think>\n\n42"));
  EXPECT_FALSE(reads(schema, "42"));
  EXPECT_FALSE(reads(schema, "some thoughts</think>\n\nx"));
}

}  // namespace
}  // namespace quipu::text::grammar
