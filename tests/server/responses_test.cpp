// OpenAI's responses against their documentation, on a tiny model.
#include <gtest/gtest.h>

#include "server_fixture.hpp"

namespace quipu::test {
namespace {

TestServer& responses_server() {
  static TestServer server([] {
    ServerSettings settings;
    settings.context = 1024;
    return settings;
  }());
  return server;
}

std::string request(const std::string& more, const std::string& input = R"("hello")") {
  return R"({"model":"tiny","input":)" + input + (more.empty() ? "" : "," + more) + "}";
}
const std::string kResponseTools =
    R"("tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}])";
const std::string kThoughtAndCall =
    "Well.<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>";

TEST(Responses, HaveTheDocumentedShape) {
  const json::object answer = responses_server().post_json(
      "/v1/responses",
      request(saying("yes") + R"(,"instructions":"be kind","metadata":{"k":"v"},"temperature":0.5)"));
  EXPECT_EQ(answer.at("object"), "response") << json::serialize(answer);
  EXPECT_EQ(answer.at("status"), "completed");
  EXPECT_EQ(answer.at("instructions"), "be kind");
  EXPECT_EQ(answer.at("temperature"), 0.5);
  EXPECT_EQ(answer.at("metadata").at("k"), "v");
  EXPECT_TRUE(answer.at("error").is_null());
  const json::object& message = answer.at("output").at(0).as_object();
  EXPECT_EQ(message.at("type"), "message");
  EXPECT_EQ(message.at("role"), "assistant");
  EXPECT_EQ(message.at("content").at(0).at("type"), "output_text");
  EXPECT_EQ(message.at("content").at(0).at("text"), "yes");
  const json::object& usage = answer.at("usage").as_object();
  EXPECT_EQ(usage.at("total_tokens").as_int64(),
            usage.at("input_tokens").as_int64() + usage.at("output_tokens").as_int64());
  // The same prompt as the chat of these two messages.
  const json::object chat = responses_server().post_json(
      "/v1/chat/completions",
      R"({"max_tokens":1,"messages":[{"role":"system","content":"be kind"},{"role":"user","content":"hello"}]})");
  EXPECT_EQ(usage.at("input_tokens"), chat.at("usage").at("prompt_tokens"));
}

TEST(Responses, WhatIsCutIsIncomplete) {
  const json::object answer = responses_server().post_json(
      "/v1/responses", request(saying("a longer answer") + R"(,"max_output_tokens":3)"));
  EXPECT_EQ(answer.at("status"), "incomplete");
  EXPECT_EQ(answer.at("incomplete_details").at("reason"), "max_output_tokens");
  EXPECT_EQ(answer.at("usage").at("output_tokens"), 3);
}

TEST(Responses, ATurnWithACallIsOneConversation) {
  const json::object answer =
      responses_server().post_json("/v1/responses", request(saying(kThoughtAndCall) + "," + kResponseTools));
  const json::array& output = answer.at("output").as_array();
  ASSERT_EQ(output.size(), 2u) << json::serialize(answer);
  EXPECT_EQ(output[0].at("content").at(0).at("text"), "Well.");
  EXPECT_EQ(output[1].at("type"), "function_call");
  EXPECT_EQ(output[1].at("name"), "f");
  EXPECT_EQ(json::parse(str(output[1].at("arguments"))).at("a"), 1);
  json::array input{json::object{
      {"role", "user"}, {"content", json::array{json::object{{"type", "input_text"}, {"text", "hello"}}}}}};
  for (const json::value& item : output) input.push_back(item);
  input.push_back(
      json::object{{"type", "function_call_output"}, {"call_id", output[1].at("call_id")}, {"output", "42"}});
  const json::object next = responses_server().post_json(
      "/v1/responses", request(saying("It is 42.") + "," + kResponseTools, json::serialize(input)));
  EXPECT_EQ(next.at("output").at(0).at("content").at(0).at("text"), "It is 42.") << json::serialize(next);
  // As the chat of the same messages.
  const json::object chat = responses_server().post_json(
      "/v1/chat/completions",
      R"({"max_tokens":1,"messages":[{"role":"user","content":"hello"},{"role":"assistant","content":"Well.","tool_calls":[)"
      R"({"id":")" +
          str(output[1].at("call_id")) + R"(","type":"function","function":{"name":"f","arguments":)" +
          json::serialize(output[1].at("arguments")) + R"(}}]},{"role":"tool","tool_call_id":")" +
          str(output[1].at("call_id")) +
          R"(","name":"f","content":"42"}],"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}]})");
  EXPECT_EQ(next.at("usage").at("input_tokens"), chat.at("usage").at("prompt_tokens"));
}

TEST(Responses, EventsAreNumberedAndJoinToTheWhole) {
  const HttpReply reply = responses_server().post(
      "/v1/responses", request(R"("stream":true,)" + saying(kThoughtAndCall) + "," + kResponseTools));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const std::vector<json::object> events = events_of(reply.body);
  std::string types, text, arguments;
  std::int64_t number = 0;
  for (const json::object& event : events) {
    EXPECT_EQ(event.at("sequence_number"), number++);
    const std::string type = str(event.at("type"));
    EXPECT_NE(reply.body.find("event: " + type + "\ndata: "), std::string::npos);
    if (type == "response.output_text.delta") text += str(event.at("delta"));
    if (type == "response.function_call_arguments.delta") arguments += str(event.at("delta"));
    if (type.find(".delta") == std::string::npos) types += type.substr(9) + " ";
  }
  EXPECT_EQ(types,
            "created in_progress output_item.added content_part.added output_text.done content_part.done "
            "output_item.done output_item.added function_call_arguments.done output_item.done completed ");
  EXPECT_EQ(text, "Well.");
  EXPECT_EQ(json::parse(arguments).at("a"), 1);
  const json::object& last = events.back().at("response").as_object();
  EXPECT_EQ(last.at("output").as_array().size(), 2u);
  EXPECT_EQ(last.at("output").at(0).at("content").at(0).at("text"), "Well.");
  EXPECT_EQ(str(last.at("output").at(1).at("arguments")), arguments);
  EXPECT_GT(last.at("usage").at("output_tokens").as_int64(), 0);
  EXPECT_EQ(reply.body.find("[DONE]"), std::string::npos);
}

TEST(Responses, ReasoningIsAnItemOfItsOwn) {
  ServerSettings settings;
  settings.chat_template +=
      "{% if add_generation_prompt %}<think>\n{% endif %}";  // and the answer goes on with it
  TestServer server(settings);
  const std::string ask = request(R"("max_output_tokens":9,"temperature":0,"ignore_eos":true)");
  const json::object whole = server.post_json("/v1/responses", ask);
  ASSERT_EQ(whole.at("output").as_array().size(), 1u) << json::serialize(whole);
  EXPECT_EQ(whole.at("output").at(0).at("type"), "reasoning");
  const std::string thought = str(whole.at("output").at(0).at("content").at(0).at("text"));
  EXPECT_GT(whole.at("usage").at("output_tokens_details").at("reasoning_tokens").as_int64(), 0);
  const HttpReply reply = server.post("/v1/responses", ask.substr(0, ask.size() - 1) + R"(,"stream":true})");
  std::string joined;
  for (const json::object& event : events_of(reply.body)) {
    if (event.at("type") == "response.reasoning_text.delta") joined += str(event.at("delta"));
    if (event.at("type") == "response.reasoning_text.done") {
      EXPECT_EQ(str(event.at("text")), thought);
    }
  }
  EXPECT_EQ(joined, thought);
}

TEST(Responses, ASchemaIsObeyed) {
  const json::object answer = responses_server().post_json(
      "/v1/responses",
      request(
          R"("seed":3,"text":{"format":{"type":"json_schema","name":"x","schema":{"type":"object","properties":)"
          R"({"ok":{"type":"boolean"}},"required":["ok"],"additionalProperties":false}}})"));
  const json::value value = json::parse(str(answer.at("output").at(0).at("content").at(0).at("text")));
  EXPECT_TRUE(value.at("ok").is_bool());
}

TEST(Responses, WhatCannotBeObeyedIsNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"model":"tiny"})", "\"input\" is missing"},
      {R"({"input":[]})", "\"input\" is empty"},
      {R"({"input":7})", "\"input\" is a number"},
      {R"({"input":[7]})", "input[0]"},
      {R"({"input":[{"role":"king","content":"x"}]})", "input[0].role"},
      {R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})", "reads text only"},
      {R"({"input":[{"type":"item_reference","id":"x"}]})", "input[0].type"},
      {R"({"input":[{"type":"function_call","name":"f"}]})", "input[0].call_id"},
      {R"({"input":"x","previous_response_id":"resp_1"})", "not stored"},
      {R"({"input":"x","background":true})", "background"},
      {R"({"input":"x","tools":[{"type":"web_search"}]})", "functions only"},
      {R"({"input":"x","text":{"format":{"type":"yaml"}}})", "yaml"},
      {R"({"input":"x","temperature":-1})", "temperature"},
  };
  for (const auto& [body, message] : cases) {
    const HttpReply reply = responses_server().post("/v1/responses", body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_NE(str(json::parse(reply.body).at("error").at("message")).find(message), std::string::npos)
        << reply.body;
  }
  const HttpReply overflow = responses_server().post(
      "/v1/responses", R"({"stream":true,"input":")" + std::string(3000, 'x') + R"("})");
  EXPECT_EQ(overflow.status, 400);
  EXPECT_EQ(json::parse(overflow.body).at("error").at("code"), "context_length_exceeded");
}

}  // namespace
}  // namespace quipu::test
