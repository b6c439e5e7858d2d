// Messages and tools as APIs give them, read and given to templates. The forms are those of OpenAI's
// reference (https://platform.openai.com/docs/api-reference/chat/create).
#include "text/conversation/conversation.hpp"

#include <gtest/gtest.h>

#include "messages.hpp"
#include "text/chat_template.hpp"

namespace quipu {
namespace {

using text::jinja::Data;
using text::jinja::parse_json;

std::vector<text::Message> messages_from(const char* json) {
  return text::read_messages(parse_json(json, "messages"));
}

TEST(Conversation, ReadsTheFormsOfOpenAi) {
  const auto messages = messages_from(R"([
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1.50}"}},
      {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": {"y": [true, null, "é"]}}},
      {"id": "call_3", "type": "function", "function": {"name": "h", "arguments": ""}}]},
    {"role": "tool", "tool_call_id": "call_1", "content": "42"}])");
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[1].content.text(), "a\nb");
  EXPECT_TRUE(messages[2].content.empty());
  EXPECT_EQ(messages[2].reasoning, "hm");
  ASSERT_EQ(messages[2].tool_calls.size(), 3u);
  EXPECT_EQ(messages[2].tool_calls[0].arguments, R"({"x": 1.50})");
  EXPECT_EQ(messages[2].tool_calls[1].arguments, R"({"y":[true,null,"é"]})");
  EXPECT_EQ(messages[2].tool_calls[2].arguments, "{}");
  EXPECT_EQ(messages[3].tool_call_id, "call_1");
}

TEST(Conversation, NamesThePlaceOfWhatIsWrong) {
  const auto said = [](const char* json) { return test::message_of([&] { messages_from(json); }); };
  EXPECT_EQ(said(R"({})"), "messages is an object, expected a list");
  EXPECT_EQ(said(R"([{"role": "user"}, 3])"), "messages[1] is an integer, expected an object");
  EXPECT_EQ(said(R"([{"content": "x"}])"), "messages[0] has no \"role\"");
  EXPECT_EQ(said(R"([{"role": "narrator", "content": "x"}])"),
            "messages[0].role is \"narrator\", expected system, developer, user, assistant or tool");
  EXPECT_EQ(said(R"([{"role": "user", "content": 5}])"),
            "messages[0].content is an integer, expected a text, null or a list of parts");
  EXPECT_EQ(said(R"([{"role": "assistant", "tool_calls": [{"function": {}}]}])"),
            "messages[0].tool_calls[0].function has no \"name\"");
  EXPECT_EQ(said(R"([{"role": "user", "tool_calls": [{"function": {"name": "f"}}]}])"),
            "messages[0] has role user and tool_calls, expected role assistant");
  const auto tools = [](const char* json) {
    return test::message_of([&] { text::read_tools(parse_json(json, "tools")); });
  };
  EXPECT_EQ(tools(R"([{"type": "retrieval"}])"), "tools[0].type is \"retrieval\", expected function");
  EXPECT_EQ(tools(R"([{"type": "function", "function": {"name": "f", "parameters": []}}])"),
            "tools[0].function.parameters is a list, expected an object");
  EXPECT_EQ(tools(R"([{"function": {"name": "f"}}, {"function": {"name": "f"}}])"),
            "tools[1].function.name is \"f\", a name that an earlier tool has");
  EXPECT_NE(tools(R"([{"function": {"name": "</tool_call>"}}])").find("brackets"), std::string::npos);
  EXPECT_EQ(test::message_of([] { text::read_template_arguments(parse_json(R"({"messages": []})", "")); }),
            "chat_template_kwargs sets messages, which the request itself gives");
}

TEST(Conversation, PicturesAndSoundAreRefusedWhereTextIsWanted) {
  const auto messages = messages_from(
      R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}])");
  EXPECT_EQ(messages[0].content.parts[0].kind, text::ContentPart::Kind::image);
  EXPECT_EQ(messages[0].content.parts[0].text, "data:x");
  EXPECT_FALSE(messages[0].content.empty());
  EXPECT_NE(test::message_of([&] { messages[0].content.text(); }).find("a part of type image"),
            std::string::npos);
}

TEST(Conversation, ToolsKeepTheOrderOfTheirKeys) {
  const char* nested =
      R"({"type":"function","function":{"parameters":{"type":"object","properties":{"b":{},"a":{}}},"name":"f"}})";
  const auto tools = text::read_tools(parse_json(std::string("[") + nested + "]", "tools"));
  EXPECT_EQ(text::to_json(text::to_data(tools[0])), nested);
  const auto flat =
      text::read_tools(parse_json(R"([{"type":"function","name":"f","strict":true}])", "tools"));
  EXPECT_EQ(
      text::to_json(text::to_data(flat[0])),
      R"({"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}},"strict":true}})");
}

TEST(Conversation, JsonTextsKeepNumbersAndEscapes) {
  // Python: json.dumps(json.loads(x), separators=(",", ":"), ensure_ascii=False)
  for (const char* json : {R"({"a":[1,-2,1.5,1e+300,0.0],"b":"\"\\\u0001\n","c":{}})", "[]",
                           "\"\xf0\x9f\xa6\x99\"", "9007199254740993"})
    EXPECT_EQ(text::to_json(parse_json(json, "x")), json);
  EXPECT_EQ(text::to_json(Data("a\xff")), "\"a\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace quipu
