// Forced and lazily forced tool calls.
#include <gtest/gtest.h>

#include <algorithm>

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

/// Reads characters, and `controls` where their names stand. The vocabulary has those that the grammar names
/// too.
bool reads(const Grammar& grammar, std::string_view text, const std::vector<std::string>& controls = {}) {
  std::vector<std::string> names = controls;
  for (const std::string& name : grammar.store().specials())
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  const auto table = test::byte_table({}, names);
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

TEST(ToolGrammar, LargeLimitsInParametersAreCounted) {
  const auto grammar = [](const std::string& inner) {
    const std::vector<Tool> tools{tool(
        "f", R"({"type":"object","properties":{"o":{"type":"object","properties":{"s":)" + inner + "}}}}")};
    return *tool_grammar(tools, hermes(), {}).grammar;
  };
  const auto call = [](const std::string& value) {
    return "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"o\": {\"s\": " + value + "}}}\n</tool_call>";
  };
  const auto text = [&](std::size_t size) { return call("\"" + std::string(size, 'x') + "\""); };
  const Grammar two = grammar(R"({"type":"string","maxLength":2000})");
  EXPECT_TRUE(matches(two, text(2000)));
  EXPECT_FALSE(matches(two, text(2001)));
  const Grammar many = grammar(R"({"type":"string","maxLength":65536})");
  EXPECT_TRUE(matches(many, text(65536)));
  EXPECT_FALSE(matches(many, text(65537)));
  const Grammar items =
      grammar(R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":100000})");
  EXPECT_TRUE(matches(items, call("[1, 2]")));
  EXPECT_FALSE(matches(items, call("[]")));
  for (const Grammar* one : {&two, &many, &items}) EXPECT_LT(one->store().size(), 5000u);
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

TEST(ToolGrammar, ABadToolMayStillBeCalledFreelyUnlessItIsStrict) {
  std::vector<Tool> tools{tool("good", R"({"type":"object","properties":{"x":{"type":"integer"}}})"),
                          tool("bad", R"({"type":"object","properties":{"x":{"type":"array",
                                          "uniqueItems":true,"items":{"type":"string"}}}})")};
  ToolGrammarOptions options;
  options.choice = ToolChoice::automatic;
  const auto call = [](const std::string& name, const std::string& arguments) {
    return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments + "}\n</tool_call>";
  };
  const ToolGrammar loose = tool_grammar(tools, hermes(), options);
  ASSERT_EQ(loose.problems.size(), 1u);
  EXPECT_TRUE(loose.problems[0].loose);
  EXPECT_NE(loose.problems[0].message.find("#/properties/x/uniqueItems"), std::string::npos);
  EXPECT_TRUE(reads(*loose.grammar, call("bad", R"({"anything": [1, "a"]})")));
  EXPECT_FALSE(reads(*loose.grammar, call("bad", "[]")));
  EXPECT_FALSE(reads(*loose.grammar, call("good", R"({"x": "1"})")));
  tools[1].strict = true;
  const ToolGrammar strict = tool_grammar(tools, hermes(), options);
  EXPECT_FALSE(strict.problems.at(0).loose);
  EXPECT_FALSE(reads(*strict.grammar, call("bad", "{}")));
  EXPECT_TRUE(reads(*strict.grammar, call("good", R"({"x": 1})")));
  EXPECT_THROW(tool_grammar(std::span(tools).last(1), hermes(), options), Error);
}

TEST(ToolGrammar, ArgumentsComeInAnyOrder) {
  const Grammar json = *tool_grammar(weather_tools(), hermes(), {}).grammar;
  EXPECT_TRUE(reads(json,
                    "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"days\": 3, \"city\": "
                    "\"Oslo\"}}\n</tool_call>"));
  OutputFormat format = hermes();
  format.calls = {{.call = "<function={name}>\n{arguments}</function>",
                   .arguments = ArgumentSyntax::xml,
                   .parameter = "<parameter={key}>\n{value}\n</parameter>\n"}};
  const Grammar elements = *tool_grammar(weather_tools(), format, {}).grammar;
  const std::string days = "<parameter=days>\n3\n</parameter>\n",
                    city = "<parameter=city>\nOslo\n</parameter>\n";
  const auto call = [](const std::string& inside) { return "<function=weather>\n" + inside + "</function>"; };
  EXPECT_TRUE(reads(elements, call(days + city)));
  EXPECT_TRUE(reads(elements, call(city + days)));
  EXPECT_FALSE(reads(elements, call(days)));
  EXPECT_FALSE(reads(elements, call(city + city)));
}

/// A family of the table.
const OutputFormat& family(std::string_view name) {
  for (const auto& format : output_formats())
    if (format->family == name) return *format;
  return general_output_format();
}

Grammar automatic(const OutputFormat& format, const std::vector<std::string>& controls = {}) {
  ToolGrammarOptions options;
  options.choice = ToolChoice::automatic;
  options.controls = controls;
  return tool_grammar(weather_tools(), format, options).grammar.value();
}

TEST(ToolGrammar, AHarmonyHeaderThatNamesAFunctionMustCallIt) {
  const std::vector<std::string> controls{"<|channel|>", "<|message|>", "<|end|>",
                                          "<|start|>",   "<|call|>",    "<|constrain|>"};
  const Grammar grammar = automatic(family("harmony"), controls);
  const std::string thought = "<|channel|>analysis<|message|>Ask it to=weather.<|end|><|start|>assistant";
  const std::string arguments = "<|message|>{\"city\": \"Oslo\"}";
  const auto good = [&](const std::string& text) { return reads(grammar, text, controls); };
  EXPECT_TRUE(good(thought + "<|channel|>final<|message|>It rains."));
  EXPECT_TRUE(good(thought + "<|channel|>commentary to=functions.weather <|constrain|>json" + arguments));
  EXPECT_TRUE(good(thought + " to=functions.weather<|channel|>commentary json" + arguments));
  EXPECT_TRUE(good("<|channel|>commentary to=functions.weather" + arguments));
  EXPECT_FALSE(good("<|channel|>commentary to=functions.wind" + arguments));
  EXPECT_FALSE(good("<|channel|>commentary to=functions.weather<|message|>{\"city\": 1}"));
  EXPECT_FALSE(good("<|channel|>commentary to=functions.weather<|message|>Oslo"));
}

TEST(ToolGrammar, AnAnswerThatBeginsAsABareCallMustBeOne) {
  const Grammar grammar = automatic(family("llama 3"));
  const std::string call = "{\"name\": \"weather\", \"parameters\": ";
  EXPECT_TRUE(reads(grammar, call + "{\"city\": \"Oslo\"}}"));
  EXPECT_FALSE(reads(grammar, call + "{\"town\": \"Oslo\"}}"));
  EXPECT_FALSE(reads(grammar, call + "5}"));
  EXPECT_TRUE(reads(grammar, "{\"name\": \"Alice\", \"age\": 5}"));  // what a person asked for
  EXPECT_TRUE(reads(grammar, "{\"name\": \"weather\"}"));
  EXPECT_TRUE(reads(grammar, "It is " + call + "as you said."));
  EXPECT_TRUE(reads(grammar, ""));
}

TEST(ToolGrammar, MessagesToToolsAndPeople) {
  const Grammar grammar = automatic(family("functionary v3.2"));
  EXPECT_TRUE(reads(grammar, "all\nIt rains."));
  EXPECT_TRUE(reads(grammar, "weather\n{\"city\": \"Oslo\"}"));
  EXPECT_TRUE(reads(grammar, "all\nI ask.>>>weather\n{\"city\": \"Oslo\"}>>>now\n{}"));
  EXPECT_FALSE(reads(grammar, "weather\nOslo"));
  EXPECT_FALSE(reads(grammar, "all\nI ask.>>>wind\n{}"));
}

TEST(ToolGrammar, ElementsInElementsObeyTheSchemaOrHoldJson) {
  const std::string ns = "]<]minimax[>[";
  const auto marked = [&](std::string text) {  // ~ stands for the mark
    for (std::size_t at = 0; (at = text.find('~', at)) != std::string::npos; at += ns.size())
      text.replace(at, 1, ns);
    return text;
  };
  std::vector<Tool> tools = weather_tools();
  tools.push_back(
      tool("plan", R"({"type":"object","properties":{"stops":{"type":"array","items":{"type":"object",
      "properties":{"town":{"type":"string"},"nights":{"type":"integer"}},"required":["town"]}},
      "tags":{"type":"array","items":{"enum":["a","b"]},"minItems":1}},"required":["stops"]})"));
  // Not held, so that any elements may come.
  tools.push_back(tool("bad", R"({"properties":{"x":{"type":"array","uniqueItems":true,"items":{}}}})"));
  const auto call = [&](const std::string& name, const std::string& inside) {
    return marked("~<tool_call>\n~<invoke name=\"" + name + "\">" + inside + "~</invoke>\n~</tool_call>");
  };
  for (const bool tokens : {false, true}) {
    ToolGrammarOptions options;
    if (tokens) options.controls = {ns};
    options.choice = ToolChoice::automatic;
    const Grammar grammar = *tool_grammar(tools, family("minimax m3"), options).grammar;
    const auto good = [&](const std::string& text) { return reads(grammar, text, options.controls); };
    EXPECT_TRUE(good("See. " + call("weather", "~<city>5 < 6~</city>~<days>3~</days>")));
    EXPECT_TRUE(good(call("now", "")));
    EXPECT_TRUE(good(call("plan",
                          "~<stops>~<item>~<town>Rom~</town>~<nights>2~</nights>~</item>~<item>~<town>"
                          "Bari~</town>~</item>~</stops>~<tags>[\"a\", \"b\"]~</tags>")));
    EXPECT_FALSE(good(call("plan", "~<stops>~<item>~<nights>2~</nights>~</item>~</stops>")));
    EXPECT_FALSE(good(call("plan", "~<stops>~</stops>~<tags>[]~</tags>")));
    EXPECT_FALSE(good(call("weather", "~<days>3~</days>")));
    EXPECT_FALSE(good(call("weather", "~<city>Rom~</city>~<days>three~</days>")));
    EXPECT_FALSE(good(call("wind", "")));
    EXPECT_TRUE(good(call("bad", "~<x>~<item>a~</item>~<item>~</item>~</x>~<y>1~</y>")));
    EXPECT_FALSE(good(call("bad", "anything")));
  }
}

TEST(ToolGrammar, MessagesAreAddressedToToolsAndPeople) {
  const std::vector<std::string> controls{"<|message|>", "<|eom|>", "<|start|>"};
  const Grammar grammar = automatic(family("muse"), controls);
  const auto good = [&](const std::string& text) { return reads(grammar, text, controls); };
  const auto call = [](const std::string& name, const std::string& inside) {
    return " to=" + name + "<|message|><atem:function_calls>\n<atem:invoke name=\"" + name + "\">\n" +
           inside + "</atem:invoke>\n</atem:function_calls>";
  };
  const std::string city = "<atem:parameter name=\"city\">Rom</atem:parameter>\n";
  const std::string next = "<|eom|><|start|>assistant";
  EXPECT_TRUE(good(" to=user<|message|>Write to=weather."));
  EXPECT_TRUE(good(" to=self<|message|>Hm." + next + call("weather", city) + next + call("now", "")));
  EXPECT_FALSE(good(call("weather", "")));
  EXPECT_FALSE(good(call("wind", "")));
  EXPECT_FALSE(good(" to=weather<|message|>Rom"));
}

TEST(ToolGrammar, ASchemaForTheAnswerStandsBesideTheCalls) {
  ToolGrammarOptions options;
  options.choice = ToolChoice::automatic;
  options.answer = Grammar::from_json_schema(R"({"type":"integer"})");
  const Grammar grammar = *tool_grammar(weather_tools(), hermes(), options).grammar;
  EXPECT_TRUE(reads(grammar, "42"));
  EXPECT_TRUE(reads(grammar, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(reads(grammar, "It is 42"));
}

TEST(ToolGrammar, ASchemaIsObeyedInTheMessageForPeople) {
  const Grammar json = Grammar::from_json_schema(R"({"type":"integer"})");
  const Grammar harmony = after_reasoning(json, family("harmony"), Thinking::possible, 0, {});
  EXPECT_TRUE(reads(harmony, "<|channel|>final<|message|>42"));
  EXPECT_TRUE(reads(harmony,
                    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final "
                    "<|constrain|>json<|message|>42"));
  EXPECT_FALSE(reads(harmony, "42"));
  EXPECT_FALSE(reads(harmony, "<|channel|>final<|message|>x"));
}

TEST(ToolGrammar, AThoughtThatIsTooLongIsClosed) {
  const auto table = test::byte_table();
  Matcher matcher(std::make_shared<Constraint>(bounded_reasoning({}, Thinking::opened, 3, {}), table));
  for (const char c : std::string_view("abc</think>\n\nand so on"))
    ASSERT_TRUE(matcher.accept(static_cast<unsigned char>(c))) << c;
  Matcher other(std::make_shared<Constraint>(bounded_reasoning({}, Thinking::opened, 3, {}), table));
  for (const char c : std::string_view("abc")) ASSERT_TRUE(other.accept(c));
  EXPECT_FALSE(other.accept('d'));
  EXPECT_TRUE(other.accept('<'));
  // Also where the text could be an answer without a thought.
  Matcher maybe(std::make_shared<Constraint>(bounded_reasoning({}, Thinking::possible, 3, {}), table));
  for (const char c : std::string_view("<think>abc")) ASSERT_TRUE(maybe.accept(c)) << c;
  EXPECT_FALSE(maybe.accept('d'));
  EXPECT_TRUE(maybe.accept('<'));
  Matcher plain(std::make_shared<Constraint>(bounded_reasoning({}, Thinking::possible, 3, {}), table));
  for (const char c : std::string_view("abcdefgh")) EXPECT_TRUE(plain.accept(c)) << c;
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
