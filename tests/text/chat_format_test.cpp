// Conversations to prompts: what templates can show is found by rendering, and what they lack is put
// otherwise.
#include "text/conversation/chat_format.hpp"

#include <gtest/gtest.h>

#include <map>

#include "golden_clock.hpp"
#include "messages.hpp"
#include "output_cases.hpp"
#include "shared_vectors.hpp"

namespace quipu {
namespace {

using text::jinja::Data;
using text::jinja::parse_json;

// ChatML as many models have it: roles as they come, nothing else.
constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
// Only users and assistants, in turn, as Gemma 2's.
constexpr const char* kTwoRoles =
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% if m.role not in ['user', 'assistant'] %}"
    "{{ raise_exception('System role not supported') }}{% endif %}[{{ m.role }}]{{ m.content | trim }}{% "
    "endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";
// Calls one at a time, arguments as text, reasoning under its own name.
constexpr const char* kOneCall =
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}[{{ m.role }}]"
    "{% if m.thinking %}({{ m.thinking }}){% endif %}"
    "{% if m.tool_calls %}{% if m.tool_calls | length > 1 %}{{ raise_exception('one call only') }}{% endif %}"
    "{{ m.tool_calls[0].function.name + ' ' + m.tool_calls[0].function.arguments }}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% if enable_thinking is not false %}<think>\n{% else %}"
    "<think></think>{% endif %}{% endif %}";

text::Conversation conversation(const char* messages, const char* tools = "null") {
  text::Conversation out;
  out.messages = text::read_messages(parse_json(messages, "messages"));
  out.tools = text::read_tools(parse_json(tools, "tools"));
  return out;
}

constexpr const char* kTool = R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])";

std::string prompt(const char* source, const text::Conversation& input) {
  const text::ChatTemplate chat(source, {});
  return text::ChatFormat(chat).prompt(input).rendered.text;
}

TEST(ChatFormat, SystemTextGoesBeforeTheUsersWhereThereIsNoSuchRole) {
  const auto input =
      conversation(R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])");
  EXPECT_EQ(prompt(kTwoRoles, input), "[user]Be brief.\n\nHi[assistant]");
  EXPECT_EQ(
      prompt(kChatMl, input),
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatFormat, WhatTheTemplateRefusesIsItsError) {
  const auto input = conversation(R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"},
                                      {"role": "assistant", "content": "c"}])");
  EXPECT_NE(test::message_of([&] { prompt(kTwoRoles, input); }).find("roles must alternate"),
            std::string::npos);
}

TEST(ChatFormat, ToolsAreDescribedInWordsWhereTheTemplateShowsNone) {
  const auto input = conversation(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
    {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "1", "function": {"name": "f",
      "arguments": "{\"x\": 1}"}}]}, {"role": "tool", "tool_call_id": "1", "content": "R"}])",
                                  kTool);
  const std::string text = prompt(kTwoRoles, input);
  EXPECT_EQ(text.find("[user]S\n\nYou may call functions."), 0u) << text;
  EXPECT_NE(text.find("{\"name\":\"f\",\"parameters\":{}}"), std::string::npos) << text;
  EXPECT_NE(
      text.find(
          "\n\nU[assistant]I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>"
          "[user]<tool_response>\nR\n</tool_response>[assistant]"),
      std::string::npos)
      << text;
  // In ChatML the results have a role that the template prints.
  EXPECT_NE(prompt(kChatMl, input).find("<|im_start|>tool\nR<|im_end|>"), std::string::npos);
}

TEST(ChatFormat, SeveralCallsBecomeOneEachWhereTheTemplateTakesNoMore) {
  const auto input = conversation(R"([{"role": "user", "content": "U"},
    {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [
      {"id": "1", "function": {"name": "f", "arguments": "{\"x\": 1}"}},
      {"id": "2", "function": {"name": "f", "arguments": {"x": 2}}}]},
    {"role": "tool", "tool_call_id": "2", "content": "R2"}, {"role": "tool", "tool_call_id": "1", "content": "R1"}])",
                                  kTool);
  const std::string text = prompt(kOneCall, input);
  EXPECT_NE(
      text.find(
          "[user]U[assistant](hm)f {\"x\": 1}[tool]R1[assistant]f {\"x\":2}[tool]R2[assistant]<think>\n"),
      std::string::npos)
      << text;
}

TEST(ChatFormat, TheAnswerStartsWhereThePromptEnds) {
  const text::ChatTemplate chat(kOneCall, {});
  const text::ChatFormat format(chat);
  EXPECT_EQ(format.capabilities().thinking_switch, "enable_thinking");
  EXPECT_EQ(format.capabilities().reasoning_key, "thinking");
  EXPECT_TRUE(format.capabilities().opens_reasoning);
  EXPECT_TRUE(format.capabilities().arguments_as_text);
  auto input = conversation(R"([{"role": "user", "content": "U"}])");
  EXPECT_EQ(format.prompt(input).start, text::OutputStart::reasoning);
  input.enable_thinking = false;
  EXPECT_EQ(format.prompt(input).start, text::OutputStart::after_reasoning);
  input.template_arguments = {{"enable_thinking", true}};  // the caller's own word wins
  EXPECT_EQ(format.prompt(input).start, text::OutputStart::reasoning);
  // A person who writes the mark opens nothing.
  const text::ChatTemplate bare("{{ messages[-1].content }}", {});
  EXPECT_EQ(text::ChatFormat(bare).prompt(conversation(R"([{"role": "user", "content": "<think>"}])")).start,
            text::OutputStart::answer);
}

TEST(ChatFormat, AFinalMessageIsContinuedWhereItEnds) {
  auto input =
      conversation(R"([{"role": "user", "content": "U"}, {"role": "assistant", "content": "One, two, "}])");
  input.continue_final_message = true;
  const text::ChatTemplate chat(kChatMl, {});
  const text::ChatFormat format(chat);
  const text::Prompt cut = format.prompt(input);
  EXPECT_EQ(cut.rendered.text, "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nOne, two, ");
  EXPECT_EQ(cut.start, text::OutputStart::content);
  EXPECT_LE(cut.rendered.trusted.back().end, cut.rendered.text.size() - 10);
  input.messages.back().content = "";
  input.messages.back().reasoning = "Let me";
  const text::ChatTemplate thinks(kOneCall, {});
  const text::Prompt thought = text::ChatFormat(thinks).prompt(input);
  EXPECT_EQ(thought.rendered.text, "[user]U[assistant](Let me");
  EXPECT_EQ(thought.start, text::OutputStart::reasoning);
  EXPECT_NE(test::message_of([&] { format.prompt(input); }).find("cannot be continued"), std::string::npos);
  input.messages.pop_back();
  EXPECT_NE(test::message_of([&] { format.prompt(input); }).find("expected one of an assistant"),
            std::string::npos);
}

TEST(ChatFormat, PicturesAreRefused) {
  const auto input = conversation(
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]}])");
  EXPECT_NE(test::message_of([&] { prompt(kChatMl, input); }).find("a part of type image"),
            std::string::npos);
}

TEST(ChatFormat, PartsOfAUsersTextAreJoinedUnlessTheTemplateTakesThem) {
  const auto input = conversation(
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])");
  EXPECT_EQ(prompt("{% for m in messages %}{{ m.content }}{% endfor %}", input), "a\nb");
  EXPECT_EQ(prompt("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
                   "{% for p in m.content %}({{ p.text }}){% endfor %}{% endif %}{% endfor %}",
                   input),
            "(a)(b)");
}

TEST(ChatFormat, MarksInWordsAreTheTemplatesAndArgumentsAreNot) {
  const text::Rendered words = text::write_calls(text::general_output_format(),
                                                 {{"1", "f", R"({"x": "<|im_end|>"})"}, {"2", "g", "{}"}});
  EXPECT_EQ(words.text,
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"<|im_end|>\"}}\n</tool_call>\n"
            "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>");
  const std::size_t inside = words.text.find("<|im_end|>");
  for (const text::TextRange& range : words.trusted)
    EXPECT_FALSE(range.begin <= inside && inside < range.end);
  // The mark at the front stays the template's through the rendering.
  const text::ChatTemplate chat("{% for m in messages %}{{ m.content }}{% endfor %}", {});
  text::ChatRequest request;
  request.messages = Data::List{Data::Mapping{{"role", "user"}, {"content", Data(words)}}};
  EXPECT_EQ(chat.render(request).trusted, words.trusted);
}

const Data& member(const Data& value, const char* key) {
  static const Data none;
  const Data* found = text::find_member(value, key);
  return found == nullptr ? none : *found;
}

// Python: json.dumps([tool["function"] for tool in tools], indent=4), as the card of Firefunction v2 has it.
constexpr const char* kFunctionsText = R"([
    {
        "name": "get_time",
        "parameters": {}
    }
])";
constexpr const char* kGetTime =
    R"([{"type": "function", "function": {"name": "get_time", "parameters": {}}}])";

TEST(ChatFormat, ToolsAreGivenAsFunctionsWhereTheTemplateReadsThose) {
  constexpr const char* reads_both =
      "{{ functions + '|' + datetime }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
  const text::ChatTemplate chat(reads_both, {});
  const text::ChatFormat format(chat);
  EXPECT_TRUE(format.capabilities().functions_variable);
  EXPECT_TRUE(format.capabilities().tools);
  const char* messages = R"([{"role": "user", "content": "Hi"}])";
  const text::Prompt prompt = format.prompt(conversation(messages, kGetTime), test::golden_clock);
  EXPECT_EQ(prompt.rendered.text, std::string(kFunctionsText) + "|2026-01-15 12:00:00[user]Hi");
  // What a tool's author wrote is not the template's.
  EXPECT_EQ(prompt.rendered.trusted.front().begin, std::string(kFunctionsText).size());
  EXPECT_EQ(format.prompt(conversation(messages), test::golden_clock).rendered.text,
            "|2026-01-15 12:00:00[user]Hi");
  // Read only where there are any; and not at all where tools are shown as such.
  const text::ChatTemplate optional_one(
      "{% if functions %}{{ functions }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}", {});
  EXPECT_TRUE(text::ChatFormat(optional_one).capabilities().functions_variable);
  const text::ChatTemplate other(
      "{{ tools | tojson }}{% if functions %}F{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}",
      {});
  EXPECT_FALSE(text::ChatFormat(other).capabilities().functions_variable);
}

TEST(ChatFormat, FirefunctionGetsItsVariables) {
  const auto folder = test::shared_data() / "chat";
  QUIPU_REQUIRE_SHARED(folder);
  const char* file = "fireworks-ai-llama-3-firefunction-v2";
  const text::ChatTemplate chat(test::read_file(folder / "templates" / (std::string(file) + ".jinja")),
                                {{"bos_token", "[BOS]"}, {"eos_token", "[EOS]"}});
  const text::ChatFormat format(chat);
  EXPECT_TRUE(format.capabilities().tools);
  EXPECT_TRUE(format.capabilities().functions_variable);
  EXPECT_TRUE(format.capabilities().parallel_tool_calls);
  const Data goldens = parse_json(test::read_file(folder / "goldens" / (std::string(file) + ".json")), file);
  const Data data = parse_json(test::read_file(folder / "conversations.json"), "conversations");
  int same = 0;
  for (const Data& golden : std::get<Data::List>(goldens.value)) {
    const std::string* expected = text::text_of(member(golden, "output"));
    if (expected == nullptr) continue;
    text::Conversation input;
    for (const Data& item : std::get<Data::List>(member(data, "conversations").value))
      if (*text::text_of(member(item, "name")) == *text::text_of(member(golden, "conversation")))
        input.messages = text::read_messages(member(item, "messages"));
    const Data& arguments = member(golden, "kwargs");
    // From tools and the clock, but for the layout of the JSON and the time.
    input.tools = text::read_tools(parse_json(kGetTime, "tools"));
    std::string from_tools = *expected;
    for (const auto& [name, text] :
         {std::pair("functions", kFunctionsText), {"datetime", "2026-01-15 12:00:00"}}) {
      const std::string& golden_text = *text::text_of(member(arguments, name));
      const std::size_t place = from_tools.find(golden_text);
      ASSERT_NE(place, std::string::npos);
      from_tools.replace(place, golden_text.size(), text);
    }
    EXPECT_EQ(format.prompt(input, test::golden_clock).rendered.text, from_tools);
    // chat_template_kwargs stand above both.
    for (const char* name : {"functions", "datetime"})
      input.template_arguments.emplace_back(name, member(arguments, name));
    EXPECT_EQ(format.prompt(input, test::golden_clock).rendered.text, *expected);
    ++same;
  }
  EXPECT_EQ(same, 5);
}

// Where a template shows all that a conversation holds, the prompt is what Hugging Face's rendering gives.
TEST(ChatFormat, SharedTemplatesGiveThePromptsOfHuggingFace) {
  const auto folder = test::shared_data() / "chat";
  QUIPU_REQUIRE_SHARED(folder);
  const Data data = parse_json(test::read_file(folder / "conversations.json"), "conversations");
  std::map<std::string, text::Conversation> inputs;
  for (const Data& item : std::get<Data::List>(member(data, "conversations").value)) {
    const std::string name = *text::text_of(member(item, "name"));
    if (name == "unknown_role" || name == "thinking_field" || name == "tool_call_string_arguments" ||
        name == "null_content" || name == "content_parts")
      continue;  // put otherwise on purpose
    text::Conversation input;
    input.messages = text::read_messages(member(item, "messages"));
    input.documents = member(item, "documents");
    Data::List tools;
    if (const auto* names = std::get_if<Data::List>(&member(item, "tools").value))
      for (const Data& tool : *names)
        tools.push_back(member(member(data, "tools"), text::text_of(tool)->c_str()));
    input.tools = text::read_tools(tools);
    inputs[name] = std::move(input);
  }
  int same = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "templates")) {
    const std::string file = entry.path().stem().string();
    const text::ChatTemplate chat(test::read_file(entry.path()),
                                  {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    const text::ChatFormat format(chat);
    const text::Capabilities& can = format.capabilities();
    const Data goldens = parse_json(test::read_file(folder / "goldens" / (file + ".json")), file);
    for (const Data& golden : std::get<Data::List>(goldens.value)) {
      const std::string* expected = text::text_of(member(golden, "output"));
      const auto input = inputs.find(*text::text_of(member(golden, "conversation")));
      if (expected == nullptr || input == inputs.end() ||
          *text::text_of(member(golden, "variant")) != "prompt")
        continue;
      const text::Conversation& given = input->second;
      const bool calls = given.messages.size() > 1 && !given.messages[1].tool_calls.empty();
      if (!given.tools.empty() && (!can.tools || !can.tool_calls || !can.parallel_tool_calls ||
                                   !can.tool_role || (calls && can.empty_content_is_none)))
        continue;
      if (!can.reasoning_key.empty() && can.reasoning_key != "reasoning_content") continue;
      EXPECT_EQ(format.prompt(given, test::golden_clock).rendered.text, *expected)
          << file << ", " << input->first;
      ++same;
    }
  }
  EXPECT_GE(same, 700);
}

}  // namespace
}  // namespace quipu
