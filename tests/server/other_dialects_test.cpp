// Anthropic's and Ollama's dialects against their documentation, on a tiny model.
#include <gtest/gtest.h>

#include "server_fixture.hpp"

namespace quipu::test {
namespace {

TestServer& dialect_server() {
  static TestServer server([] {
    ServerSettings settings;
    settings.context = 1024;  // tools that the template does not know are told of in words
    return settings;
  }());
  return server;
}

const std::string kCall = "Well.<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>";

std::string anthropic(const std::string& more) {
  return R"({"model":"tiny","max_tokens":300,"messages":[{"role":"user","content":"hello"}])" +
         (more.empty() ? "" : "," + more) + "}";
}
const std::string kAnthropicTools =
    R"("tools":[{"name":"f","description":"d","input_schema":{"type":"object","properties":{"a":{"type":"integer"}}}}])";

TEST(Anthropic, AMessageHasTheDocumentedShape) {
  const json::object answer = dialect_server().post_json(
      "/v1/messages", anthropic(saying("yes no") + R"(,"stop_sequences":["no"],"cache_prompt":false)"));
  EXPECT_EQ(answer.at("type"), "message");
  EXPECT_EQ(answer.at("role"), "assistant");
  EXPECT_EQ(answer.at("content").at(0).at("type"), "text");
  EXPECT_EQ(answer.at("content").at(0).at("text"), "yes ");
  EXPECT_EQ(answer.at("stop_reason"), "stop_sequence");
  EXPECT_EQ(answer.at("stop_sequence"), "no");
  EXPECT_EQ(answer.at("usage").at("input_tokens"), 22);
  const json::object counted = dialect_server().post_json("/v1/messages/count_tokens", anthropic(""));
  EXPECT_EQ(counted.at("input_tokens"), 22);
}

TEST(Anthropic, ToolsAreUsedAndTheirResultsComeBack) {
  const json::object answer =
      dialect_server().post_json("/v1/messages", anthropic(saying(kCall) + "," + kAnthropicTools));
  EXPECT_EQ(answer.at("stop_reason"), "tool_use");
  EXPECT_EQ(answer.at("content").at(0).at("text"), "Well.");
  const json::object& use = answer.at("content").at(1).as_object();
  EXPECT_EQ(use.at("type"), "tool_use");
  EXPECT_EQ(use.at("name"), "f");
  EXPECT_EQ(use.at("input").at("a"), 1);
  const HttpReply next = dialect_server().post(
      "/v1/messages",
      R"({"model":"tiny","max_tokens":2,"messages":[{"role":"user","content":"hello"},{"role":"assistant","content":)" +
          json::serialize(answer.at("content")) +
          R"(},{"role":"user","content":[{"type":"tool_result","tool_use_id":)" +
          json::serialize(use.at("id")) + R"(,"content":"42"},{"type":"text","text":"so?"}]}],)" +
          kAnthropicTools + "}");
  EXPECT_EQ(next.status, 200) << next.body;
}

TEST(Anthropic, AStreamIsABlockAfterTheOther) {
  const HttpReply reply = dialect_server().post(
      "/v1/messages", anthropic(R"("stream":true,)" + saying(kCall) + "," + kAnthropicTools));
  std::string types, text, arguments;
  for (const json::object& event : events_of(reply.body)) {
    const std::string type = str(event.at("type"));
    if (type != "content_block_delta") types += type + " ";
    if (type != "content_block_delta") continue;
    const json::object& delta = event.at("delta").as_object();
    if (delta.at("type") == "text_delta") text += str(delta.at("text"));
    if (delta.at("type") == "input_json_delta") arguments += str(delta.at("partial_json"));
  }
  EXPECT_EQ(types,
            "message_start content_block_start content_block_stop content_block_start content_block_stop "
            "message_delta message_stop ");
  EXPECT_EQ(text, "Well.");
  EXPECT_EQ(json::parse(arguments).at("a"), 1);
  EXPECT_EQ(reply.body.substr(0, 20), "event: message_start");
}

TEST(Anthropic, ErrorsAreItsOwn) {
  const HttpReply missing =
      dialect_server().post("/v1/messages", R"({"model":"tiny","messages":[{"role":"user","content":"x"}]})");
  EXPECT_EQ(missing.status, 400);
  const json::value error = json::parse(missing.body);
  EXPECT_EQ(error.at("type"), "error");
  EXPECT_EQ(error.at("error").at("type"), "invalid_request_error");
  EXPECT_EQ(error.at("error").at("message"), "max_tokens: field required");
  const HttpReply unknown = dialect_server().post("/v1/messages", R"({"model":"x","max_tokens":1})");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(json::parse(unknown.body).at("error").at("type"), "not_found_error");
  const HttpReply longer = dialect_server().post(
      "/v1/messages", R"({"model":"tiny","max_tokens":1,"messages":[{"role":"user","content":")" +
                          std::string(1300, 'x') + R"("}]})");
  EXPECT_EQ(longer.status, 400);
  EXPECT_NE(str(json::parse(longer.body).at("error").at("message")).find("tokens > 1024 maximum"),
            std::string::npos);
  for (const std::string more :
       {R"("tool_choice":{"type":"sometimes"})", R"("system":7)", R"("tools":[{"type":"bash_20250124"}])"})
    EXPECT_EQ(dialect_server().post("/v1/messages", anthropic(more)).status, 400) << more;
  EXPECT_EQ(
      dialect_server()
          .post(
              "/v1/messages",
              R"({"model":"tiny","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image"}]}]})")
          .status,
      400);
}

std::vector<json::object> lines_of(const std::string& body) {
  std::vector<json::object> list;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = std::min(body.find('\n', at), body.size());
    if (end > at) list.push_back(json::parse(body.substr(at, end - at)).as_object());
    at = end + 1;
  }
  return list;
}

const std::string kOllamaChat =
    R"({"model":"tiny:latest","messages":[{"role":"user","content":"hello"}],"options":{"num_predict":6,"temperature":0})";

TEST(Ollama, ChatStreamsLinesUnlessToldOtherwise) {
  const HttpReply stream = dialect_server().post("/api/chat", kOllamaChat + "}");
  EXPECT_EQ(stream.headers.at("content-type"), "application/x-ndjson");
  const auto lines = lines_of(stream.body);
  std::string text;
  for (const json::object& line : lines) {
    EXPECT_EQ(line.at("model"), "tiny:latest");
    text += str(line.at("message").at("content"));
  }
  EXPECT_EQ(lines.back().at("done"), true);
  EXPECT_EQ(lines.back().at("prompt_eval_count"), 22);
  const json::object whole = dialect_server().post_json("/api/chat", kOllamaChat + R"(,"stream":false})");
  EXPECT_EQ(str(whole.at("message").at("content")), text);
  EXPECT_EQ(whole.at("done"), true);
}

TEST(Ollama, FormatHoldsAndGenerateAnswers) {
  const json::object answer = dialect_server().post_json(
      "/api/chat",
      R"({"model":"tiny","stream":false,"messages":[{"role":"user","content":"x"}],"format":{"type":"object",)"
      R"("properties":{"ok":{"type":"boolean"}},"required":["ok"],"additionalProperties":false},)"
      R"("options":{"seed":3,"num_predict":300}})");
  EXPECT_TRUE(json::parse(str(answer.at("message").at("content"))).at("ok").is_bool());
  const json::object raw = dialect_server().post_json(
      "/api/generate",
      R"({"model":"tiny","prompt":"ab","raw":true,"stream":false,"options":{"num_predict":4,"temperature":0}})");
  const json::object same =
      dialect_server().post_json("/completion", R"({"prompt":"ab","n_predict":4,"temperature":0})");
  EXPECT_EQ(raw.at("response"), same.at("content"));
  EXPECT_EQ(dialect_server().post_json("/api/generate", R"({"model":"tiny"})").at("done_reason"), "load");
}

TEST(Ollama, ModelsAreToldOf) {
  EXPECT_EQ(json::parse(dialect_server().get("/api/tags").body).at("models").at(0).at("name"), "tiny:latest");
  dialect_server().served();  // loaded
  EXPECT_EQ(json::parse(dialect_server().get("/api/ps").body).at("models").at(0).at("context_length"), 1024);
  EXPECT_EQ(json::parse(dialect_server().get("/api/version").body).at("version"), "test");
  const json::object shown = dialect_server().post_json("/api/show", R"({"model":"tiny"})");
  EXPECT_EQ(shown.at("model_info").at("general.architecture"), "llama");
  EXPECT_EQ(shown.at("model_info").at("llama.context_length"), 1024);
}

TEST(Tools, ACallThatIsAskedForComesWhateverTheModel) {
  const std::string tools =
      R"({"messages":[{"role":"user","content":"hello"}],)"
      R"("tools":[{"type":"function","function":{"name":"first","parameters":{"type":"object","properties":)"
      R"({"a":{"type":"integer","minimum":0,"maximum":9}},"required":["a"],"additionalProperties":false}}},)"
      R"({"type":"function","function":{"name":"second","parameters":{"type":"object","properties":{},)"
      R"("additionalProperties":false}}}],)"
      R"("parallel_tool_calls":false,"temperature":1.5,"max_tokens":600,)";
  const auto ask = [&](const std::string& choice, int seed) {
    return dialect_server().post_json("/v1/chat/completions", tools + "\"seed\":" + std::to_string(seed) +
                                                                  ",\"tool_choice\":" + choice + "}");
  };
  for (int seed = 1; seed <= 3; ++seed) {
    const json::object any = ask("\"required\"", seed);
    const json::object& choice = any.at("choices").at(0).as_object();
    ASSERT_EQ(choice.at("finish_reason"), "tool_calls") << json::serialize(any);
    const json::object named = ask(R"({"type":"function","function":{"name":"first"}})", seed);
    const json::array& calls = named.at("choices").at(0).at("message").at("tool_calls").as_array();
    ASSERT_EQ(calls.size(), 1u) << json::serialize(named);
    EXPECT_EQ(calls[0].at("function").at("name"), "first");
    const json::value arguments =
        json::parse(std::string(calls[0].at("function").at("arguments").as_string()));
    EXPECT_GE(arguments.at("a").to_number<int>(), 0);
    EXPECT_LE(arguments.at("a").to_number<int>(), 9);
  }
  const HttpReply unknown = dialect_server().post(
      "/v1/chat/completions", tools + R"("tool_choice":{"type":"function","function":{"name":"third"}}})");
  EXPECT_EQ(unknown.status, 400);
  EXPECT_NE(unknown.body.find("third"), std::string::npos) << unknown.body;
}

// llama.cpp's tools/server/README.md: grammar_lazy, grammar_triggers. Type 1 is a word, 0 a token.
TEST(LlamaCpp, ALazyGrammarHoldsFromItsTriggerOn) {
  const auto content = [](const std::string& triggers) {
    return str(dialect_server()
                   .post_json("/completion",
                              R"({"prompt":"ab","n_predict":12,"temperature":0,"logit_bias":[["q",100]],)"
                              R"("grammar":"root ::= \"qz!\"","grammar_lazy":true,"grammar_triggers":)" +
                                  triggers + "}")
                   .at("content"));
  };
  EXPECT_EQ(content(R"([{"type":1,"value":"q"}])"), "qz!");
  const json::array ids =
      dialect_server().post_json("/tokenize", R"({"content":"q"})").at("tokens").as_array();
  EXPECT_EQ(content(R"([{"type":0,"value":"q","token":)" + json::serialize(ids.back()) + "}]"), "qz!");
  EXPECT_EQ(content(R"([{"type":1,"value":"qz!"}])"), "qqqqqqqqqqqq");  // it never comes
  for (const auto& [triggers, message] : std::vector<std::pair<std::string, std::string>>{
           {"[]", "needs \\\"grammar_triggers\\\""},
           {R"([{"type":2,"value":"q"}])", "patterns are not supported"},
           {R"([{"type":0,"value":"q"}])", "grammar_triggers[0].token"},
           {R"([{"type":1,"value":"z"}])", "does not begin with its trigger"}}) {
    const HttpReply reply = dialect_server().post(
        "/completion",
        R"({"prompt":"a","grammar":"root ::= \"qz!\"","grammar_lazy":true,"grammar_triggers":)" + triggers +
            "}");
    EXPECT_EQ(reply.status, 400) << triggers;
    EXPECT_NE(reply.body.find(message), std::string::npos) << reply.body;
  }
}

TEST(Ollama, ErrorsAreItsOwn) {
  const HttpReply unknown = dialect_server().post("/api/chat", R"({"model":"nope","messages":[]})");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_TRUE(json::parse(unknown.body).at("error").is_string());
  for (const std::string more : {R"("format":"xml")", R"("options":{"temperature":-1})",
                                 R"("options":{"num_ctx":99999})", R"("options":7)"})
    EXPECT_EQ(
        dialect_server()
            .post("/api/chat", R"({"model":"tiny","messages":[{"role":"user","content":"x"}],)" + more + "}")
            .status,
        400)
        << more;
  EXPECT_EQ(dialect_server().get("/api/nothing").status, 404);
}

}  // namespace
}  // namespace quipu::test
