// The OpenAI dialect against its documentation, on a tiny model.
#include <gtest/gtest.h>

#include "server_fixture.hpp"

namespace quipu::test {
namespace {

TestServer& openai_server() {
  static TestServer server;
  return server;
}

std::string chat(const std::string& more) {
  return R"({"model":"tiny","messages":[{"role":"user","content":"hello"}],"temperature":0,"max_tokens":8)" +
         (more.empty() ? "" : "," + more) + "}";
}

TEST(OpenAi, AChatAnswerHasTheDocumentedShape) {
  const json::object answer = openai_server().post_json("/v1/chat/completions", chat(R"("ignore_eos":true)"));
  EXPECT_EQ(answer.at("object"), "chat.completion");
  EXPECT_EQ(str(answer.at("id")).substr(0, 9), "chatcmpl-");
  EXPECT_EQ(answer.at("model"), "tiny");
  const json::object& choice = answer.at("choices").as_array().at(0).as_object();
  EXPECT_EQ(choice.at("index"), 0);
  EXPECT_EQ(choice.at("finish_reason"), "length");
  EXPECT_EQ(choice.at("message").at("role"), "assistant");
  EXPECT_FALSE(str(choice.at("message").at("content")).empty());
  const json::object& usage = answer.at("usage").as_object();
  // <|im_start|> user \n h-e-l-l-o <|im_end|> \n <|im_start|> assistant \n, in the tiny vocabulary where "he"
  // and "ll" are one token: 1+4+1 +3 +1+1 +1+9+1.
  EXPECT_EQ(usage.at("prompt_tokens"), 22);
  EXPECT_EQ(usage.at("completion_tokens"), 8);
  EXPECT_EQ(usage.at("total_tokens"), 30);
}

TEST(OpenAi, TheStreamJoinsToTheWholeAnswerAndEndsWithDone) {
  const json::object whole = openai_server().post_json("/v1/chat/completions", chat(R"("ignore_eos":true)"));
  const HttpReply reply = openai_server().post(
      "/v1/chat/completions",
      chat(R"("ignore_eos":true,"stream":true,"stream_options":{"include_usage":true})"));
  EXPECT_EQ(reply.headers.at("content-type"), "text/event-stream; charset=utf-8");
  ASSERT_TRUE(reply.complete);
  EXPECT_EQ(reply.body.substr(reply.body.size() - 14), "data: [DONE]\n\n");
  std::string text;
  std::string finish;
  int roles = 0;
  const auto events = events_of(reply.body);
  for (const json::object& event : events) {
    EXPECT_EQ(event.at("object"), "chat.completion.chunk");
    for (const json::value& choice : event.at("choices").as_array()) {
      const json::object& delta = choice.at("delta").as_object();
      if (delta.contains("role")) ++roles;
      if (delta.contains("content")) text += str(delta.at("content"));
      if (!choice.at("finish_reason").is_null()) finish = str(choice.at("finish_reason"));
    }
  }
  EXPECT_EQ(roles, 1);
  EXPECT_EQ(finish, "length");
  EXPECT_EQ(text, str(whole.at("choices").at(0).at("message").at("content")));
  EXPECT_EQ(events.back().at("usage").at("completion_tokens"), 8);
  EXPECT_TRUE(events.front().at("usage").is_null());
}

TEST(OpenAi, SeveralChoicesAreNumberedAndTheFirstIsThatOfOne) {
  const std::string sampled = R"("n":3,"temperature":1,"seed":7,"ignore_eos":true)";
  const json::object three = openai_server().post_json("/v1/chat/completions", chat(sampled));
  const json::object one = openai_server().post_json("/v1/chat/completions",
                                                     chat(R"("temperature":1,"seed":7,"ignore_eos":true)"));
  const json::array& choices = three.at("choices").as_array();
  ASSERT_EQ(choices.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(choices.at(i).at("index"), i);
  EXPECT_EQ(choices.at(0).at("message"), one.at("choices").at(0).at("message"));
  EXPECT_NE(choices.at(0).at("message"), choices.at(1).at("message"));
  EXPECT_EQ(three.at("usage").at("prompt_tokens"), one.at("usage").at("prompt_tokens"));
  EXPECT_EQ(three.at("usage").at("completion_tokens"), 24);
}

TEST(OpenAi, LogprobsAreSortedNegativeAndOnePerToken) {
  const json::object answer = openai_server().post_json(
      "/v1/chat/completions", chat(R"("ignore_eos":true,"logprobs":true,"top_logprobs":5)"));
  const json::array& content = answer.at("choices").at(0).at("logprobs").at("content").as_array();
  ASSERT_EQ(content.size(), 8u);
  for (const json::value& token : content) {
    const json::array& top = token.at("top_logprobs").as_array();
    ASSERT_EQ(top.size(), 5u);
    EXPECT_EQ(top.at(0).at("logprob"), token.at("logprob")) << "greedy takes the most probable one";
    double previous = 0;
    for (const json::value& other : top) {
      EXPECT_LE(other.at("logprob").to_number<double>(), previous);
      previous = other.at("logprob").to_number<double>();
    }
  }
}

TEST(OpenAi, LogprobsAreThoseOfTheModelAtAnyTemperature) {
  const auto first_top = [](const std::string& temperature) {
    const json::object answer = openai_server().post_json(
        "/v1/completions", R"({"prompt":"ab","max_tokens":1,"logprobs":5,"seed":3,"top_k":2,"temperature":)" +
                               temperature + "}");
    return answer.at("choices").at(0).at("logprobs").at("top_logprobs").at(0).as_object();
  };
  json::object cold = first_top("0"), warm = first_top("0.7"), hot = first_top("2");
  // The drawn token is listed beside the five; at these temperatures it may be any of the best two.
  EXPECT_EQ(cold.size(), 5u);
  EXPECT_EQ(json::serialize(cold), json::serialize(warm));
  EXPECT_EQ(json::serialize(cold), json::serialize(hot));
}

TEST(OpenAi, EchoGivesThePromptsLogprobsSoThatTheyMultiplyToItsProbability) {
  // The same number two ways: token by token as completions, and at once as the echo of a prompt.
  const json::object echoed = openai_server().post_json(
      "/v1/completions", R"({"prompt":[104,105,106],"max_tokens":0,"echo":true,"logprobs":1})");
  const json::object& choice = echoed.at("choices").at(0).as_object();
  const json::array& values = choice.at("logprobs").at("token_logprobs").as_array();
  ASSERT_EQ(values.size(), 3u);
  EXPECT_TRUE(values.at(0).is_null());
  EXPECT_EQ(str(choice.at("text")),
            str(openai_server().post_json("/detokenize", R"({"tokens":[104,105,106]})").at("content")));
  const json::object step = openai_server().post_json(
      "/completion", R"({"prompt":[104],"n_predict":1,"n_probs":263,"temperature":0,"ignore_eos":true})");
  for (const json::value& other : step.at("completion_probabilities").at(0).at("top_logprobs").as_array()) {
    if (other.at("id") != 105) continue;
    EXPECT_EQ(other.at("logprob"), values.at(1));
  }
}

TEST(OpenAi, SeveralPromptsGiveAChoiceEach) {
  const json::object answer =
      openai_server().post_json("/v1/completions", R"({"prompt":["ab","cd",""],"max_tokens":2})");
  EXPECT_EQ(answer.at("error").at("param"), "prompt") << "the empty one is refused";
  const json::object two = openai_server().post_json(
      "/v1/completions", R"({"prompt":["ab",[99,100]],"max_tokens":2,"n":2,"ignore_eos":true})");
  EXPECT_EQ(two.at("choices").as_array().size(), 4u);
  EXPECT_EQ(two.at("usage").at("prompt_tokens"), 4);
}

TEST(OpenAi, TheContextIsNeverExceededInSilence) {
  const json::object answer = openai_server().post_json(
      "/v1/completions", R"({"prompt":")" + std::string(700, 'x') + R"(","max_tokens":5})");
  const json::object& error = answer.at("error").as_object();
  EXPECT_EQ(error.at("code"), "context_length_exceeded");
  EXPECT_EQ(error.at("type"), "invalid_request_error");
  EXPECT_NE(str(error.at("message")).find("700"), std::string::npos);
  EXPECT_NE(str(error.at("message")).find("512"), std::string::npos);
  // 500 tokens and room for 12: the answer ends with "length".
  const json::object cut =
      openai_server().post_json("/v1/completions", R"({"prompt":")" + std::string(500, 'x') +
                                                       R"(","max_tokens":100,"ignore_eos":true})");
  EXPECT_EQ(cut.at("choices").at(0).at("finish_reason"), "length");
  EXPECT_EQ(cut.at("usage").at("completion_tokens"), 12);
  const HttpReply stream = openai_server().post(
      "/v1/completions", R"({"stream":true,"prompt":")" + std::string(700, 'x') + R"("})");
  EXPECT_EQ(stream.status, 400) << "an error comes before a stream starts";
}

TEST(OpenAi, TheTemplatesRefusalIsTheAnswer) {
  ServerSettings settings;
  settings.chat_template = "{{ raise_exception('roles must alternate') }}";
  TestServer server(settings);
  const HttpReply reply = server.post("/v1/chat/completions", chat(""));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(json::parse(reply.body).at("error").at("message"), "roles must alternate");
}

TEST(OpenAi, ATemplateThatDoesNotParseLeavesPlainCompletions) {
  ServerSettings settings;
  settings.chat_template = "{% for m in messages %}{{ m.content ";
  TestServer server(settings);
  const HttpReply reply = server.post("/v1/chat/completions", chat(""));
  EXPECT_EQ(reply.status, 400);
  EXPECT_NE(reply.body.find("the chat template does not parse, line 1"), std::string::npos) << reply.body;
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt":"a","max_tokens":2})").status, 200);
}

TEST(OpenAi, AGrammarOfManyGroupsIsAnAnswerOrARefusal) {
  const auto reply = [&](int groups) {
    return openai_server().post("/completion", R"({"prompt":"x","n_predict":1,"grammar":"root ::= )" +
                                                   std::string(groups, '(') + R"(\"a\")" +
                                                   std::string(groups, ')') + "\"}");
  };
  EXPECT_EQ(str(json::parse(reply(90).body).at("content")), "a");
  const HttpReply refused = reply(60000);
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("groups nested deeper than"), std::string::npos) << refused.body;
  EXPECT_EQ(openai_server().get("/health").status, 200);
}

TEST(OpenAi, WhatCannotBeObeyedIsRefused) {
  for (const auto& [more, parameter] : std::vector<std::pair<std::string, std::string>>{
           {R"("response_format":{"type":"xml"})", "response_format.type"},
           {R"("response_format":{"type":"json_schema"})", "response_format.json_schema"},
           {R"("response_format":{"type":"json_object"},"grammar":"root ::= \"a\"")", "grammar"},
           {R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"sometimes")",
            "tool_choice"},
           {R"("tool_choice":"required")", "tool_choice"},
           {R"("functions":[])", "functions"},
           {R"("top_logprobs":3)", "top_logprobs"},

           {R"("logit_bias":{"999999":1})", "logit_bias"}}) {
    const HttpReply reply = openai_server().post("/v1/chat/completions", chat(more));
    EXPECT_EQ(reply.status, 400) << more;
    EXPECT_EQ(str(json::parse(reply.body).at("error").at("param")), parameter) << reply.body;
  }
  EXPECT_EQ(openai_server()
                .post("/v1/chat/completions",
                      chat(R"("tools":[{"type":"function","function":{"name":"f","parameters":{}}}])"))
                .status,
            200);
}

/// The answer to forced text, whatever the model.
json::object forced(const std::string& literal, const std::string& more = {}) {
  const std::string grammar = "root ::= " + json::serialize(json::value(literal));
  return openai_server().post_json(
      "/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"max_tokens":400,"grammar":)" +
                                  json::serialize(json::value(grammar)) + (more.empty() ? "" : "," + more) +
                                  "}");
}

/// The same in a stream: the pieces of content joined, and how it finished.
std::pair<std::string, std::string> streamed(const std::string& literal, const std::string& more) {
  const std::string grammar = "root ::= " + json::serialize(json::value(literal));
  const HttpReply reply = openai_server().post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"x"}],"max_tokens":400,"stream":true,"grammar":)" +
          json::serialize(json::value(grammar)) + "," + more + "}");
  std::pair<std::string, std::string> result;
  for (const json::object& event : events_of(reply.body)) {
    const json::object& choice = event.at("choices").at(0).as_object();
    if (!choice.at("finish_reason").is_null()) result.second = str(choice.at("finish_reason"));
    const json::value* content = choice.at("delta").as_object().if_contains("content");
    if (content != nullptr && content->is_string()) result.first += str(*content);
  }
  return result;
}

TEST(OpenAi, AnAnswerObeysItsSchema) {
  const json::object answer = openai_server().post_json(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"x"}],"max_tokens":400,"temperature":1.5,"seed":1,)"
      R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object",)"
      R"("properties":{"age":{"type":"integer"},"on":{"type":"boolean"}},"required":["age","on"],)"
      R"("additionalProperties":false}}}})");
  const json::value value = json::parse(str(answer.at("choices").at(0).at("message").at("content")));
  EXPECT_TRUE(value.at("age").is_number());
  EXPECT_TRUE(value.at("on").is_bool());
  EXPECT_EQ(answer.at("choices").at(0).at("finish_reason"), "stop");
  const HttpReply bad = openai_server().post(
      "/v1/chat/completions",
      chat(
          R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"nope"}}})"));
  EXPECT_EQ(bad.status, 400) << bad.body;
}

const std::string kTools =
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object",)"
    R"("properties":{"a":{"type":"integer"}}}}}])";

TEST(OpenAi, AnyJsonComesToItsEndWithoutRunsOfSpaceOrDigits) {
  for (const char* format :
       {R"({"type":"json_object"})", R"({"type":"json_schema","json_schema":{"name":"x","schema":{}}})"})
    for (int seed = 1; seed <= 6; ++seed) {
      const json::object answer = openai_server().post_json(
          "/v1/chat/completions",
          R"({"messages":[{"role":"user","content":"x"}],"temperature":1.5,"max_tokens":40,)"
          R"("seed":)" +
              std::to_string(seed) + R"(,"response_format":)" + format + "}");
      const std::string text = str(answer.at("choices").at(0).at("message").at("content"));
      std::error_code error;
      json::parse(text, error);
      EXPECT_FALSE(error) << format << " " << seed << ": " << text;
      // Outside of strings at most two line ends with twenty spaces, and 32 digits on each side of a point.
      std::size_t space = 0, digits = 0;
      bool in_text = false;
      for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '"' && (i == 0 || text[i - 1] != '\\')) in_text = !in_text;
        space = !in_text && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t') ? space + 1 : 0;
        digits = !in_text && text[i] >= '0' && text[i] <= '9' ? digits + 1 : 0;
        ASSERT_LE(space, 44u) << text;
        ASSERT_LE(digits, 32u) << text;
      }
    }
}

TEST(OpenAi, CallsAreTakenOutOfTheText) {
  const std::string text = "Well. <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  const json::object answer = forced(text, kTools);
  const json::object& choice = answer.at("choices").at(0).as_object();
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  const json::object& call = choice.at("message").at("tool_calls").at(0).as_object();
  EXPECT_EQ(call.at("type"), "function");
  EXPECT_EQ(call.at("function").at("name"), "f");
  EXPECT_EQ(json::parse(str(call.at("function").at("arguments"))).at("a"), 1);
  EXPECT_NE(str(choice.at("message").at("content")).find("Well."), std::string::npos);
  // Without tools the same is text.
  EXPECT_EQ(str(forced(text).at("choices").at(0).at("message").at("content")), text);
}

TEST(OpenAi, StreamedCallsBeginOnceAndTheirArgumentsJoin) {
  const std::string text = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 12345}}</tool_call>";
  const std::string grammar = "root ::= " + json::serialize(json::value(text));
  const HttpReply reply = openai_server().post(
      "/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"stream":true,"grammar":)" +
                                  json::serialize(json::value(grammar)) + "," + kTools + "}");
  std::string arguments, finish, id;
  int names = 0;
  for (const json::object& event : events_of(reply.body)) {
    const json::object& choice = event.at("choices").at(0).as_object();
    if (!choice.at("finish_reason").is_null()) finish = str(choice.at("finish_reason"));
    const json::value* calls = choice.at("delta").as_object().if_contains("tool_calls");
    if (calls == nullptr) continue;
    const json::object& call = calls->at(0).as_object();
    EXPECT_EQ(call.at("index"), 0);
    if (call.contains("id")) {
      ++names;
      id = str(call.at("id"));
      EXPECT_EQ(call.at("function").at("name"), "f");
    }
    arguments += str(call.at("function").at("arguments"));
  }
  EXPECT_EQ(names, 1);
  EXPECT_FALSE(id.empty());
  EXPECT_EQ(json::parse(arguments).at("a"), 12345);
  EXPECT_EQ(finish, "tool_calls");
}

TEST(OpenAi, WhatIsNoCallIsText) {
  for (const std::string text : {"<tool_call>not json</tool_call>", "a </tool_call> b", "Done.\n<think>\n",
                                 "<tool_call>{\"name\": \"f\", \"argu"}) {
    EXPECT_EQ(str(forced(text, kTools).at("choices").at(0).at("message").at("content")), text);
    EXPECT_EQ(streamed(text, kTools).first, text);
  }
}

/// With room for the tools' definitions.
TestServer& roomy() {
  static TestServer server([] {
    ServerSettings settings;
    settings.context = 4096;
    return settings;
  }());
  return server;
}

std::string tool_named(const std::string& name, const std::string& parameters) {
  return R"({"type":"function","function":{"name":")" + name + R"(","parameters":)" + parameters + "}}";
}

std::string asks(const std::string& tools, const std::string& choice, const std::string& more = "") {
  return R"({"messages":[{"role":"user","content":"x"}],"max_tokens":200,"temperature":1.5,"seed":3,"tools":[)" +
         tools + R"(],"tool_choice":)" + choice + more + "}";
}

TEST(OpenAi, RequiredCallsStreamTheirArgumentsAsTheyAreWritten) {
  const std::string tools = tool_named("f", R"({"type":"object","properties":{"s":{"type":"string",
      "minLength":10,"maxLength":30},"n":{"type":"integer"}},"required":["s","n"]})");
  const json::object whole = roomy().post_json(
      "/v1/chat/completions", asks(tools, R"("required")", R"(,"parallel_tool_calls":false)"));
  const std::string expected =
      str(whole.at("choices").at(0).at("message").at("tool_calls").at(0).at("function").at("arguments"));
  EXPECT_GE(str(json::parse(expected).at("s")).size(), 10u);
  EXPECT_TRUE(json::parse(expected).at("n").is_number());
  const HttpReply reply = roomy().post(
      "/v1/chat/completions", asks(tools, R"("required")", R"(,"parallel_tool_calls":false,"stream":true)"));
  std::string joined;
  int pieces = 0, names = 0;
  for (const json::object& event : events_of(reply.body)) {
    const json::value* calls = event.at("choices").at(0).at("delta").as_object().if_contains("tool_calls");
    if (calls == nullptr) continue;
    const json::object& call = calls->at(0).as_object();
    EXPECT_EQ(call.contains("id"), names == 0 && pieces == 0);
    names += call.contains("id") ? 1 : 0;
    const std::string piece = str(call.at("function").at("arguments"));
    pieces += piece.empty() ? 0 : 1;
    joined += piece;
  }
  EXPECT_EQ(names, 1);
  EXPECT_GE(pieces, 5);
  EXPECT_EQ(joined, expected);
}

TEST(OpenAi, CallsThatRunOutOfTokensAreWholeAndFinishAsCalls) {
  const std::string tools =
      tool_named("f", R"({"type":"object","properties":{"s":{"type":"string"}},"required":["s"]})");
  for (const char* stream : {"", R"(,"stream":true)"}) {
    const HttpReply reply = roomy().post(
        "/v1/chat/completions",
        R"({"messages":[{"role":"user","content":"x"}],"max_tokens":70,"temperature":1.5,"seed":3,"tools":[)" +
            tools + R"(],"tool_choice":"required")" + stream + "}");
    EXPECT_NE(reply.body.find(R"("finish_reason":"tool_calls")"), std::string::npos) << reply.body;
    EXPECT_EQ(reply.body.find(R"("finish_reason":"length")"), std::string::npos) << reply.body;
  }
}

TEST(OpenAi, AToolWithoutParametersIsCalledWithNone) {
  const std::string tools = tool_named("now", R"({"type":"object","properties":{}})") + "," +
                            tool_named("f", R"({"type":"object","properties":{"a":{"type":"integer"}},
                                               "required":["a"]})");
  for (const char* name : {"now", "f"}) {
    const json::object answer = roomy().post_json(
        "/v1/chat/completions",
        asks(tools, std::string(R"({"type":"function","function":{"name":")") + name + "\"}}"));
    const json::object& call =
        answer.at("choices").at(0).at("message").at("tool_calls").at(0).at("function").as_object();
    EXPECT_EQ(call.at("name"), name);
    EXPECT_EQ(json::parse(str(call.at("arguments"))).as_object().size(), name[0] == 'n' ? 0u : 1u);
  }
  EXPECT_EQ(roomy().post("/v1/chat/completions", asks(tools, R"("auto")")).status, 200);
}

TEST(OpenAi, ABadToolIsNamedAndTheOthersWork) {
  std::string tools = tool_named("broken", R"({"type":"object","properties":{"o":{"type":"object",
      "properties":{"s":{"type":"string","pattern":"(?<=a)b"}}}}})");
  const std::string alone = tools;
  for (int i = 0; i < 12; ++i)
    tools += "," + tool_named("t" + std::to_string(i), R"({"type":"object","properties":{}})");
  for (const char* choice : {R"("auto")", R"("required")"}) {
    const json::object answer = roomy().post_json("/v1/chat/completions", asks(tools, choice));
    const std::string warning = str(answer.at("warnings").at(0));
    EXPECT_NE(warning.find("\"broken\""), std::string::npos) << warning;
    EXPECT_NE(warning.find("#/properties/o/properties/s/pattern"), std::string::npos) << warning;
    EXPECT_EQ(answer.at("warnings").as_array().size(), 1u);
    if (choice[1] == 'a') continue;
    const json::value& call = answer.at("choices").at(0).at("message").at("tool_calls").at(0);
    EXPECT_EQ(str(call.at("function").at("name")).front(), 't');
  }
  for (const std::string& request :
       {asks(alone, R"("required")"), asks(tools, R"({"type":"function","function":{"name":"broken"}})")}) {
    const HttpReply reply = roomy().post("/v1/chat/completions", request);
    EXPECT_EQ(reply.status, 400);
    EXPECT_NE(reply.body.find("#/properties/o/properties/s/pattern"), std::string::npos) << reply.body;
  }
}

TEST(OpenAi, ThoughtsComeBeforeTheSchemaWithinTheirBudget) {
  ServerSettings settings;
  settings.chat_template =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}";
  TestServer server(settings);
  const std::string request =
      R"({"messages":[{"role":"user","content":"x"}],"max_tokens":120,"temperature":1.5,"seed":2,)"
      R"("reasoning_budget":12,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":)"
      R"({"type":"object","properties":{"on":{"type":"boolean"}},"required":["on"],)"
      R"("additionalProperties":false}}})";
  const json::object answer = server.post_json("/v1/chat/completions", request + "}");
  const json::object& message = answer.at("choices").at(0).at("message").as_object();
  EXPECT_FALSE(str(message.at("reasoning_content")).empty());
  EXPECT_TRUE(json::parse(str(message.at("content"))).at("on").is_bool()) << str(message.at("content"));
  // Twelve tokens of thoughts, the mark, and an object of a few.
  EXPECT_LE(answer.at("usage").at("completion_tokens").as_int64(), 12 + 8 + 60);
  std::string reasoning, content;
  for (const json::object& event :
       events_of(server.post("/v1/chat/completions", request + R"(,"stream":true})").body)) {
    const json::object& delta = event.at("choices").at(0).at("delta").as_object();
    if (const json::value* text = delta.if_contains("reasoning_content")) reasoning += str(*text);
    if (const json::value* text = delta.if_contains("content")) content += str(*text);
  }
  EXPECT_EQ(reasoning, str(message.at("reasoning_content")));
  EXPECT_EQ(content, str(message.at("content")));
  // The tokens run out in the middle of a thought: the answer is complete all the same.
  const json::object brief = server.post_json(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"x"}],"max_tokens":40,"temperature":1.5,"seed":2,)"
      R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object",)"
      R"("properties":{"on":{"type":"boolean"}},"required":["on"],"additionalProperties":false}}}})");
  const json::object& choice = brief.at("choices").at(0).as_object();
  EXPECT_TRUE(json::parse(str(choice.at("message").at("content"))).at("on").is_bool());
  EXPECT_EQ(choice.at("finish_reason"), "length");
}

TEST(OpenAi, StopStringsInForcedText) {
  const auto text = [](const std::string& literal, const std::string& stops) {
    const std::string grammar = "root ::= " + json::serialize(json::value(literal));
    const json::object answer = openai_server().post_json(
        "/completion", R"({"prompt":"A B C","grammar":)" + json::serialize(json::value(grammar)) +
                           R"(,"stop":)" + stops + "}");
    return str(answer.at("content"));
  };
  EXPECT_EQ(text(" L M N O P Q R S", R"(["O P Q"])"), " L M N ");
  EXPECT_EQ(text(" L M N O P Q R S", R"(["O P Q","M N"])"), " L ");
  EXPECT_EQ(text("ok\nUser is here", R"(["\nUser:"])"), "ok\nUser is here");
  EXPECT_EQ(text("ok\nUser: hi", R"(["\nUser:"])"), "ok");
  EXPECT_EQ(text("\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xb8\x96", "[\"\xe5\xa5\xbd\"]"), "\xe4\xbd\xa0");
}

TEST(OpenAi, StopStringsInForcedStreams) {
  using Outcome = std::pair<std::string, std::string>;
  EXPECT_EQ(streamed("?\nAlice", R"("stop":"\n")"), Outcome("?", "stop"));
  EXPECT_EQ(streamed("ok\nUser: hi", R"("stop":["\nUser:"])"), Outcome("ok", "stop"));
  EXPECT_EQ(streamed("ok\nUser is here", R"("stop":["\nUser:"])"), Outcome("ok\nUser is here", "stop"));
  EXPECT_EQ(streamed(" L M N O P Q R S", R"("stop":["O P Q","N O"])"), Outcome(" L M ", "stop"));
}

TEST(OpenAi, ALogitBiasForcesAndForbids) {
  const auto first = [](const std::string& bias) {
    return str(openai_server()
                   .post_json("/v1/completions",
                              R"({"prompt":"ab","max_tokens":1,"temperature":0,"logit_bias":)" + bias + "}")
                   .at("choices")
                   .at(0)
                   .at("text"));
  };
  EXPECT_EQ(first(R"({"65":100})"),
            str(openai_server().post_json("/detokenize", R"({"tokens":[65]})").at("content")));
  EXPECT_NE(first(R"({"65":100,"66":1000})"), first(R"({"65":100})"));
}

TEST(OpenAi, AStopStringEndsTheTextBeforeIt) {
  const json::object whole = openai_server().post_json(
      "/completion",
      R"({"prompt":"ab","n_predict":24,"temperature":0,"ignore_eos":true,"return_tokens":true})");
  const std::string text = str(whole.at("content"));
  // A stop in the middle of the text, as wide as a character or two.
  const std::size_t at =
      text.find_first_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", 8);
  ASSERT_NE(at, std::string::npos);
  const std::string stop = text.substr(at, 1);
  const std::string expected = text.substr(0, text.find(stop));
  const json::object cut = openai_server().post_json(
      "/v1/completions",
      R"({"prompt":"ab","max_tokens":24,"temperature":0,"ignore_eos":true,"stop":[")" + stop + R"("]})");
  EXPECT_EQ(str(cut.at("choices").at(0).at("text")), expected);
  EXPECT_EQ(cut.at("choices").at(0).at("finish_reason"), "stop");
}

TEST(OpenAi, ModelsAreListedAndFound) {
  const json::object list = json::parse(openai_server().get("/v1/models").body).as_object();
  EXPECT_EQ(list.at("object"), "list");
  EXPECT_EQ(list.at("data").at(0).at("id"), "tiny");
  EXPECT_EQ(openai_server().get("/v1/models/tiny").status, 200);
  const HttpReply unknown = openai_server().get("/v1/models/other");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(json::parse(unknown.body).at("error").at("code"), "model_not_found");
  EXPECT_EQ(
      openai_server().post("/v1/completions", R"({"model":"alias","prompt":"a","max_tokens":1})").status,
      200);
}

TEST(OpenAi, AScoredPromptHasOneEntryBehindItWhateverWasDrawn) {
  // What lm-eval asks: the entries of the prompt are those but the last.
  const std::string ask = R"({"prompt":"hello you","echo":true,"logprobs":1,"max_tokens":1,"temperature":0)";
  const auto tokens = [&](const std::string& more) {
    const json::object answer = openai_server().post_json("/v1/completions", ask + more + "}");
    return answer.at("choices").at(0).at("logprobs").at("token_logprobs").as_array();
  };
  const json::array drawn = tokens(R"(,"ignore_eos":true)");
  json::array ended = tokens(R"(,"logit_bias":{"262":100})");  // <|im_end|>, the model's EOS
  ASSERT_EQ(ended.size(), drawn.size());
  for (std::size_t i = 0; i + 1 < drawn.size(); ++i) EXPECT_EQ(ended[i], drawn[i]) << i;
}

TEST(OpenAi, PlainCompletionsObeyGrammarsToo) {
  const json::object answer = openai_server().post_json(
      "/v1/completions",
      R"({"prompt":"a","max_tokens":40,"grammar":"root ::= \" L M N O P Q\"","stop":"O P"})");
  EXPECT_EQ(answer.at("choices").at(0).at("text"), " L M N ") << json::serialize(answer);
}

TEST(OpenAi, ClientsThatCountTokensCanDoSo) {
  const json::value info = json::parse(openai_server().get("/tokenizer_info").body);
  EXPECT_EQ(info.at("eos_token"), "<|im_end|>");
  const json::object counted =
      openai_server().post_json("/tokenize", R"({"prompt":"hello","add_special_tokens":false})");
  EXPECT_EQ(counted.at("count"), 3) << "he, ll, o";
  const json::object spelt =
      openai_server().post_json("/detokenize", R"({"tokens":)" + json::serialize(counted.at("tokens")) + "}");
  EXPECT_EQ(spelt.at("prompt"), "hello");
}

}  // namespace
}  // namespace quipu::test
