// What each family's models write, taken apart. The texts are those of the chat templates' own calls, of
// model cards, and of what the parsers of vLLM and llama.cpp are tested with; expectations are worked out by
// hand.
#include "core/error.hpp"
#include "output_cases.hpp"
#include "shared_vectors.hpp"

namespace quipu {
namespace {

constexpr const char* kTools = R"([
  {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}, "metric": {"type": "boolean"},
      "parts": {"type": "array"}, "note": {"type": ["string", "null"]}, "any": {}}}}},
  {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
  {"type": "function", "function": {"name": "python", "parameters": {"type": "object", "properties": {
      "code": {"type": "string"}}}}}])";

struct Case {
  const char* family;
  const char* text;
  const char* expected;
  text::OutputStart start = text::OutputStart::answer;
};

std::shared_ptr<const text::OutputFormat> family(std::string_view name) {
  for (const auto& format : text::output_formats())
    if (format->family == name) return format;
  ADD_FAILURE() << "there is no family " << name;
  return text::output_formats().back();
}

void check(std::initializer_list<Case> cases) {
  const auto tools = test::tools_from(kTools);
  for (const Case& item : cases) {
    text::OutputOptions options;
    options.tools = tools;
    options.start = item.start;
    EXPECT_EQ(test::describe(test::parse_all_ways(family(item.family), options, item.text)), item.expected)
        << item.family << ": " << item.text;
  }
}

TEST(OutputFamilies, ObjectsInTags) {
  check({
      {"hermes", "Hello, world", "C|Hello, world\n"},
      {"hermes",
       "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Z\u00fcrich\"}}\n</tool_call>",
       "T|weather {\"city\": \"Z\u00fcrich\"}\n"},
      {"hermes",
       "Let me see.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n"
       "<tool_call>\n{\"arguments\": {\"days\": 2}, \"name\": \"weather\"}\n</tool_call>\n",
       "C|Let me see.\nT|now {}\nT|weather {\"days\": 2}\n"},
      {"hermes", "<think>\nHm.\n</think>\n\n<tool_call>{\"name\":\"now\"}</tool_call>", "R|Hm.\nT|now {}\n"},
      {"hermes", "<think>\n\n</think>\n\nFour.", "C|Four.\n"},
      {"hermes", "Hm.\n</think>\n\nFour. </think>", "R|Hm.\nC|Four. </think>\n",
       text::OutputStart::reasoning},
      {"hermes", "<tool_call>{\"name\": \"weather\", \"arguments\": \"{\\\"days\\\": 1}\"}</tool_call>",
       "T|weather {\"days\": 1}\n"},
      {"hermes",
       "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"</tool_call>\"}}\n</tool_call> ok",
       "C| ok\nT|weather {\"city\": \"</tool_call>\"}\n"},
      // Without the closing tag: it may be a token that ends the answer.
      {"hermes", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n", "T|now {}\n"},
      {"apriel",
       "I think.\n[BEGIN FINAL RESPONSE]\n<tool_calls>[{\"name\": \"now\", \"arguments\": {}, \"id\": "
       "\"a\"}, "
       "{\"name\": \"weather\", \"arguments\": {\"days\": 2}, \"id\": \"b\"}]</tool_calls>",
       "R|I think.\nT|now {}\nT|weather {\"days\": 2}\n", text::OutputStart::reasoning},
      {"nemotron nano", "<TOOLCALL>[{\"name\": \"now\", \"arguments\": {}}]</TOOLCALL>", "T|now {}\n"},
      {"minimax m1",
       "<tool_calls>\n{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"now\", \"arguments\": "
       "{}}\n</tool_calls>",
       "T|now {}\nT|now {}\n"},
      {"granite 3", "<|tool_call|>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Rom\"}}]",
       "T|weather {\"city\": \"Rom\"}\n"},
      {"granite 3", "<think>Easy.</think><response>Four</response>", "R|Easy.\nC|Four\n"},
      {"phi 4", "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]<|/tool_call|>", "T|now {}\n"},
      {"phi 4", "<|tool_call|>{\"name\": \"now\", \"arguments\": {}}<|/tool_call|>", "T|now {}\n"},
      {"functools",
       " functools[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"weather\", \"arguments\": {}}]",
       "T|now {}\nT|weather {}\n"},
      {"gigachat 3.1", "So.<|function_call|>{\"name\": \"now\", \"arguments\": {}}", "C|So.\nT|now {}\n"},
      {"gemma", "```tool_code\nweather(city='Rom', days=2)\n```",
       "T|weather {\"city\": \"Rom\", \"days\": 2}\n"},
  });
}

TEST(OutputFamilies, ElementsInElements) {
  const std::string ns = "]<]minimax[>[";
  const auto marked = [&](std::string text) {  // ~ stands for the mark
    for (std::size_t at = 0; (at = text.find('~', at)) != std::string::npos; at += ns.size())
      text.replace(at, 1, ns);
    return text;
  };
  const auto tools = test::tools_from(kTools);
  text::OutputOptions options;
  options.tools = tools;
  const auto parsed = [&](const std::string& text) {
    return test::describe(test::parse_all_ways(family("minimax m3"), options, marked(text)));
  };
  EXPECT_EQ(parsed("<mm:think>Hm.</mm:think>See.~<tool_call>\n~<invoke name=\"weather\">~<city>5 < 6~</city>"
                   "~<days>2~</days>~</invoke>\n~<invoke name=\"now\">~</invoke>\n~</tool_call>"),
            "R|Hm.\nC|See.\nT|weather {\"city\": \"5 < 6\", \"days\": 2}\nT|now {}\n");
  EXPECT_EQ(
      parsed("~<tool_call>\n~<invoke name=\"weather\">~<parts>~<item>1~</item>~<item>~<k>a b~</k>~<l>"
             "true~</l>~</item>~</parts>~<any>~<x>~<item>~</item>~</x>~</any>~<city>12~</city>~</invoke>\n"
             "~</tool_call>"),
      "T|weather {\"parts\": [1, {\"k\": \"a b\", \"l\": true}], \"any\": {\"x\": [\"\"]}, \"city\": "
      "\"12\"}\n");
  EXPECT_EQ(parsed("~<tool_call>\n~<invoke name=\"weather\">~<parts>~</parts>~<any>[1]~</any>~</invoke>\n"),
            "T|weather {\"parts\": [], \"any\": [1]}\n");
  for (const std::string broken : {"~<tool_call>\n~<invoke name=\"weather\">~<city>Rome~</town>~</invoke>",
                                   "~<tool_call>\n~<invoke name=\"weather\">~<city>Rome",
                                   "~<tool_call>\n~<invoke name=\"weather\">Rome~</invoke>\n~</tool_call>"})
    EXPECT_EQ(parsed(broken), "C|" + marked(broken) + "\n");
}

TEST(OutputFamilies, MessagesToToolsWithElements) {
  const std::string call =
      "<atem:function_calls>\n<atem:invoke name=\"weather\">\n<atem:parameter name=\"city\"> Rom\n"
      "</atem:parameter>\n<atem:parameter name=\"days\">2</atem:parameter>\n</atem:invoke>\n"
      "</atem:function_calls>";
  const std::string now = "<atem:function_calls>\n<atem:invoke name=\"now\">\n</atem:invoke>";
  const std::string good = " to=self<|message|>Hm.<|eom|><|start|>assistant to=weather<|message|>" + call +
                           "<|eom|><|start|>assistant to=now<|message|>" + now;
  const std::string bad = " to=weather<|message|>Rom?";
  check({
      {"muse", " to=user<|message|>Four, to=self.<|eot|>", "C|Four, to=self.\n"},
      {"muse", good.c_str(), "R|Hm.\nT|weather {\"city\": \" Rom\\n\", \"days\": 2}\nT|now {}\n"},
      {"muse", bad.c_str(), "C| to=weather<|message|>Rom?\n"},
      {"muse", "Four.", "C|Four.\n"},
  });
}

TEST(OutputFamilies, Cohere) {
  check({
      {"command r7b",
       "<|START_THINKING|>I will look.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
       "\"tool_name\": "
       "\"weather\", \"parameters\": {\"city\": \"Oslo\"}},\n    {\"tool_call_id\": \"1\", \"tool_name\": "
       "\"now\", "
       "\"parameters\": {}}\n]<|END_ACTION|>",
       "R|I will look.\nT|weather {\"city\": \"Oslo\"}\nT|now {}\n"},
      {"command r7b", "<|START_RESPONSE|>Four.<|END_RESPONSE|>", "C|Four.\n"},
      {"command r",
       "Action:\n```json\n[\n    {\n        \"tool_name\": \"weather\",\n        \"parameters\": {\n         "
       "   "
       "\"city\": \"Oslo\"\n        }\n    }\n]```",
       "T|weather {\n            \"city\": \"Oslo\"\n        }\n"},
  });
}

TEST(OutputFamilies, NamesBeforeJson) {
  check({
      {"mistral nemo",
       "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}, \"id\": \"abcdEF001\"}]",
       "T|weather {\"city\": \"Oslo\"}\n"},
      {"mistral", "See.[TOOL_CALLS]weather[ARGS]{\"city\": \"Oslo\"}[TOOL_CALLS]now[ARGS]{}",
       "C|See.\nT|weather {\"city\": \"Oslo\"}\nT|now {}\n"},
      {"mistral", "[TOOL_CALLS]now{}", "T|now {}\n"},
      {"mistral", "[THINK]Hm, [1] is it.[/THINK]Four.", "R|Hm, [1] is it.\nC|Four.\n"},
      {"mistral small 3.2", "[TOOL_CALLS]weather[CALL_ID]abcdEF001[ARGS]{\"days\": 3}",
       "T|weather {\"days\": 3}\n"},
      {"functionary v3.1", "<function=weather>{\"city\": \"Oslo\"}</function><function=now>{}</function>",
       "T|weather {\"city\": \"Oslo\"}\nT|now {}\n"},
      {"functionary v3.1", "<|python_tag|>print(\"a\")\n", "T|python {\"code\": \"print(\\\"a\\\")\\n\"}\n"},
      {"deepseek r1",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": "
       "\"Oslo\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<"
       "｜tool▁call▁end｜"
       "><｜tool▁calls▁end｜>",
       "T|weather {\"city\": \"Oslo\"}\nT|now {}\n"},
      {"deepseek v3.1",
       "Wait.</think>See.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": "
       "\"Oslo\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><"
       "｜tool▁calls▁end｜>",
       "R|Wait.\nC|See.\nT|weather {\"city\": \"Oslo\"}\nT|now {}\n", text::OutputStart::reasoning},
      {"kimi k2",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{"
       "\"city\": "
       "\"Oslo\"}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_"
       "call_end|>"
       "<|tool_calls_section_end|>",
       "T|weather {\"city\": \"Oslo\"}\nT|now {}\n"},
      {"kimi k2",
       "I look. <|tool_calls_section_begin|><|tool_call_begin|>functions.now:7<|tool_call_argument_begin|>{}"
       "<|tool_call_end|><|tool_calls_section_end|>",
       "R|I look.\nT|now {}\n", text::OutputStart::reasoning},
      {"solar",
       "<|tool_calls|><|tool_call:begin|>ab<|tool_call:name|>now<|tool_call:args|>{}<|tool_call:end|><|calls|"
       ">",
       "T|now {}\n"},
      {"apertus", "<|tools_prefix|>[{\"weather\": {\"city\": \"Oslo\"}}, {\"now\": {}}]<|tools_suffix|>",
       "T|weather {\"city\": \"Oslo\"}\nT|now {}\n"},
  });
}

TEST(OutputFamilies, ArgumentsInTags) {
  check({
      {"qwen3-coder",
       "So.\n\n<tool_call>\n<function=weather>\n<parameter=city>\nNew\nYork\n</"
       "parameter>\n<parameter=days>\n2\n"
       "</parameter>\n<parameter=metric>\nTrue\n</parameter>\n<parameter=parts>\n[{'a': "
       "None}]\n</parameter>\n"
       "<parameter=note>\nnull\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</"
       "function>\n"
       "</tool_call>",
       "C|So.\nT|weather {\"city\": \"New\\nYork\", \"days\": 2, \"metric\": true, \"parts\": [{\"a\": "
       "null}], "
       "\"note\": null}\nT|now {}\n"},
      // The outer tag forgotten, as smaller models do.
      {"qwen3-coder", "<function=weather>\n<parameter=city>\n5 < 6\n</parameter>\n</function>\n</tool_call>",
       "T|weather {\"city\": \"5 < 6\"}\n"},
      {"qwen3-coder",
       "<tool_call>\n<function=weather>\n<parameter=any>\nx \"y\" "
       "\\\n</parameter>\n</function>\n</tool_call>",
       "T|weather {\"any\": \"x \\\"y\\\" \\\\\"}\n"},
      {"seed",
       "<seed:think>Hm.</seed:think>\n<seed:tool_call>\n<function=weather>\n<parameter=city>Oslo</"
       "parameter>\n"
       "<parameter=days>2</parameter>\n</function>\n</seed:tool_call>",
       "R|Hm.\nT|weather {\"city\": \"Oslo\", \"days\": 2}\n"},
      {"glm",
       "<think>Hm.</think>\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>12</arg_value>\n"
       "<arg_key>days</arg_key>\n<arg_value>12</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
       "R|Hm.\nT|weather {\"city\": \"12\", \"days\": 12}\nT|now {}\n"},
      {"glm compact",
       "</think>See.<tool_call>weather<arg_key>city</arg_key><arg_value> Oslo "
       "</arg_value></tool_call><tool_call>now"
       "</tool_call>",
       "C|See.\nT|weather {\"city\": \" Oslo \"}\nT|now {}\n", text::OutputStart::reasoning},
      {"minimax m2",
       "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Oslo</parameter>\n"
       "<parameter name=\"metric\">false</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n"
       "</minimax:tool_call>",
       "T|weather {\"city\": \"Oslo\", \"metric\": false}\nT|now {}\n"},
      {"deepseek v3.2",
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" "
       "string=\"true\">12</｜DSML｜parameter>\n<｜DSML｜parameter name=\"parts\" string=\"false\">[1, "
       "{\"a\": null}]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
       "T|weather {\"city\": \"12\", \"parts\": [1, {\"a\": null}]}\n"},
      {"minicpm 5", "<function name=\"weather\"><param name=\"city\">Oslo</param></function>",
       "T|weather {\"city\": \"Oslo\"}\n"},
      {"hunyuan 3",
       "<tool_calls:opensource>\n<tool_call:opensource>weather<tool_sep:opensource>\n<arg_key:opensource>city"
       "</arg_key:opensource>\n<arg_value:opensource>Oslo</arg_value:opensource>\n</tool_call:opensource>\n"
       "</tool_calls:opensource>",
       "T|weather {\"city\": \"Oslo\"}\n"},
  });
}

TEST(OutputFamilies, Llama) {
  check({
      {"llama 3", "{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\"}}",
       "T|weather {\"city\": \"Oslo\"}\n"},
      {"llama 3", "{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}", "T|now {}\n"},
      {"llama 3", "<|python_tag|>{\"name\": \"now\", \"parameters\": {}}", "T|now {}\n"},
      {"llama 3", "<|python_tag|>weather.call(city=\"Oslo\", days=3)",
       "T|weather {\"city\": \"Oslo\", \"days\": 3}\n"},
      {"llama 3", "<|python_tag|>import math\nprint(math.pi)",
       "T|python {\"code\": \"import math\\nprint(math.pi)\"}\n"},
      {"llama 3",
       "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"weather\", \"parameters\": {\"days\": 1}}",
       "T|now {}\nT|weather {\"days\": 1}\n"},
      // JSON that somebody asked for, or in the middle of the text, is no call.
      {"llama 3", "{\"name\": \"Bob\", \"age\": 3}", "C|{\"name\": \"Bob\", \"age\": 3}\n"},
      {"llama 3", "{\"answer\": {\"name\": \"now\"}}", "C|{\"answer\": {\"name\": \"now\"}}\n"},
      {"llama 3", "Use {\"name\": \"now\", \"parameters\": {}}",
       "C|Use {\"name\": \"now\", \"parameters\": {}}\n"},
  });
}

TEST(OutputFamilies, CallsInOtherNotations) {
  check({
      {"lfm2",
       "<|tool_call_start|>[weather(city='O\\'Neil \"x\"', parts=[1, (2.5, None)], metric=True), now()]"
       "<|tool_call_end|>",
       "T|weather {\"city\": \"O'Neil \\\"x\\\"\", \"parts\": [1, [2.5, null]], \"metric\": true}\nT|now "
       "{}\n"},
      {"lfm2", "<|tool_call_start|>[weather(\"Oslo\", 3)]<|tool_call_end|>Checking.",
       "C|Checking.\nT|weather {\"city\": \"Oslo\", \"days\": 3}\n"},
      {"gemma 4",
       "<|channel>thought\nHm.\n<channel|><|tool_call>call:weather{city:<|\"|>a \"b\" {c}<|\"|>,days:2,"
       "parts:[<|\"|>x<|\"|>,{k:true}]}<tool_call|><|tool_call>call:now{}<tool_call|>",
       "R|Hm.\nT|weather {\"city\": \"a \\\"b\\\" {c}\", \"days\": 2, \"parts\": [\"x\", {\"k\": "
       "true}]}\nT|now {}\n"},
      // A list is no arguments.
      {"gemma 4", "<|tool_call>call:weather[1,{k:true}]<tool_call|>",
       "C|<|tool_call>call:weather[1,{k:true}]<tool_call|>\n"},
  });
}

TEST(OutputFamilies, Channels) {
  check({
      {"harmony",
       "<|channel|>analysis<|message|>Need it.<|end|><|start|>assistant<|channel|>commentary "
       "to=functions.weather "
       "<|constrain|>json<|message|>{\"city\": \"Oslo\"}<|call|>",
       "R|Need it.\nT|weather {\"city\": \"Oslo\"}\n"},
      {"harmony", " to=functions.now<|channel|>commentary json<|message|>{}", "T|now {}\n"},
      {"harmony",
       "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>I "
       "look.<|end|>"
       "<|start|>assistant<|channel|>final<|message|> Four.\n<|return|>",
       "R|a\nC|I look. Four.\n\n"},
      {"harmony", "Plain words.", "C|Plain words.\n"},
      {"harmony", "<|channel|>final<|message|>a <|en b", "C|a <|en b\n"},
      {"functionary v3.2", "all\nLet me see.\n>>>weather\n{\"city\": \"Oslo\"}>>>now\n{}",
       "C|Let me see.\n\nT|weather {\"city\": \"Oslo\"}\nT|now {}\n"},
      {"functionary v3.2", "python\nprint(1)\n", "T|python {\"code\": \"print(1)\\n\"}\n"},
      {"functionary v3.2", "all\nHello", "C|Hello\n"},
  });
}

TEST(OutputFamilies, WhatIsNoCallIsTextAndNothingIsLost) {
  check({
      {"hermes", "Done.\n<think>\n", "C|Done.\n<think>\n\n"},
      {"hermes", "<tool_call>{\"name\": \"f\", \"argu", "C|<tool_call>{\"name\": \"f\", \"argu\n"},
      {"hermes", "<tool_call>not json</tool_call>", "C|<tool_call>not json</tool_call>\n"},
      {"hermes", "a </tool_call> b", "C|a </tool_call> b\n"},
      {"hermes", "<tool_call></tool_call>", "C|<tool_call></tool_call>\n"},
      {"hermes", "x\n<tool_call", "C|x\n<tool_call\n"},
      {"hermes", "<tool_call>{\"name\": \"\"}</tool_call>", "C|<tool_call>{\"name\": \"\"}</tool_call>\n"},
      {"hermes", "<tool_call>{\"arguments\": {}}</tool_call>",
       "C|<tool_call>{\"arguments\": {}}</tool_call>\n"},
      {"hermes", "<tool_call>{\"name\": \"now\", \"arguments\": [1]}</tool_call>",
       "C|<tool_call>{\"name\": \"now\", \"arguments\": [1]}</tool_call>\n"},
      {"hermes", "<tool_call> no <tool_call>{\"name\": \"now\"}</tool_call>", "C|<tool_call> no\nT|now {}\n"},
      {"hermes", "<think>never closed", "R|never closed\n"},
      {"minimax m1", "<tool_calls>{\"name\": \"now\"} {\"name\": 1}</tool_calls>",
       "C| {\"name\": 1}</tool_calls>\nT|now {}\n"},
      {"glm", "<tool_call>two words</tool_call>", "C|<tool_call>two words</tool_call>\n"},
      {"mistral", "[TOOL_CALLS]", "C|[TOOL_CALLS]\n"},
      {"lfm2", "<|tool_call_start|>[now(]<|tool_call_end|>",
       "C|<|tool_call_start|>[now(]<|tool_call_end|>\n"},
      {"harmony", "<|channel|>commentary to=functions.now<|message|>oops",
       "C|<|channel|>commentary to=functions.now<|message|>oops\n"},
      {"harmony", "<|channel|>", "C|<|channel|>\n"},
      {"functionary v3.2", "what is\nthis", "C|what is\nthis\n"},
  });
}

TEST(OutputFamilies, ACallThatBreaksOffAfterItAppearedKeepsWhatIsCertain) {
  const auto tools = test::tools_from(kTools);
  text::OutputOptions options;
  options.tools = tools;
  options.stream_arguments = true;
  const auto parsed = [&](const char* name, const char* text) {
    for (const std::size_t size : {1, 2, 3, 7, 64})
      EXPECT_EQ(test::describe(test::parse_in_pieces(family(name), options, text, size)),
                test::describe(test::parse_in_pieces(family(name), options, text, 0)));
    return test::describe(test::parse_in_pieces(family(name), options, text, 1));
  };
  EXPECT_EQ(parsed("hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": [1, 2"),
            "T|now {\"a\": [1, 2\n");
  EXPECT_EQ(parsed("hermes", "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": oops}}</tool_call>"),
            "C|oops}}</tool_call>\nT|now {\"a\": \n");
  EXPECT_EQ(parsed("glm", "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Os</arg"),
            "C|</arg\nT|weather {\"city\": \"Os\n");
  EXPECT_EQ(parsed("glm", "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Os</arg_value>\nno"),
            "C|\nno\nT|weather {\"city\": \"Os\"\n");
  EXPECT_EQ(parsed("harmony", "<|channel|>commentary to=functions.now<|message|>{\"a\": x}"),
            "C|x}\nT|now {\"a\": \n");
}

TEST(OutputFamilies, WithoutToolsNothingIsACall) {
  for (const auto& format : text::output_formats()) {
    if (format->channels) continue;
    const std::string text =
        "a " + format->calls[0].section_open + "{\"name\": \"f\"} [TOOL_CALLS] <tool_call>";
    EXPECT_EQ(test::describe(test::parse_all_ways(format, {}, text)), "C|" + text + "\n") << format->family;
  }
}

TEST(OutputFamilies, TextIsHeldBackOnlyWhileItMayBeAMark) {
  const auto tools = test::tools_from(kTools);
  text::OutputOptions options;
  options.tools = tools;
  text::OutputParser parser(family("hermes"), options);
  const auto shown = [&](std::string_view text) {
    text::ParsedOutput output;
    for (const auto& event : parser.push(text)) output.add(event);
    return output.content;
  };
  EXPECT_EQ(shown("5 <"), "5");
  EXPECT_EQ(shown(" 6"), " < 6");
  EXPECT_EQ(shown(" <tool"), "");
  EXPECT_EQ(shown("box>"), " <toolbox>");
  EXPECT_EQ(shown("\n"), "");
  EXPECT_EQ(shown("x"), "\nx");
}

TEST(OutputFamilies, IdsComeFromTheTextOrAreMade) {
  const auto tools = test::tools_from(kTools);
  text::OutputOptions options;
  options.tools = tools;
  const auto ids = [&](const char* name, std::string_view text) {
    std::vector<std::string> out;
    for (const auto& call : text::parse_output(family(name), options, text).tool_calls)
      out.push_back(call.id);
    return out;
  };
  EXPECT_EQ(ids("mistral small 3.2", "[TOOL_CALLS]now[CALL_ID]abcdEF001[ARGS]{}"),
            std::vector<std::string>{"abcdEF001"});
  EXPECT_EQ(
      ids("kimi k2",
          "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:3<|tool_call_argument_begin|>{}"),
      std::vector<std::string>{"functions.now:3"});
  const auto made = ids("mistral", "[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]now[ARGS]{}");
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[0].size(), 9u);  // the length that Mistral's templates ask for
  EXPECT_NE(made[0], made[1]);
  options.id_seed = 1;
  EXPECT_NE(ids("mistral", "[TOOL_CALLS]now[ARGS]{}")[0], made[0]);
}

}  // namespace
}  // namespace quipu
