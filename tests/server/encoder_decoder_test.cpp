// T5 over HTTP: the answers of transformers' `generate`, in both completion dialects, whole and streamed,
// alone and in company; what an encoder cannot do is refused by name.
#include <gtest/gtest.h>

#include <list>

#include "convert_folder.hpp"
#include "models/golden.hpp"
#include "server_fixture.hpp"

namespace quipu::test {
namespace {

class EncoderDecoder : public testing::Test {
 protected:
  static ServerSettings settings() {
    ServerSettings s;
    s.model = folder().path();
    s.cache = DType::f32;  // as the reference has it
    s.keep_slots = true;   // as --slot-save-path has it
    s.server.slot_save_path = folder().path();
    return s;
  }
  static const ModelFolder& folder() {
    static const ModelFolder t5("t5");
    return t5;
  }
  static TestServer& server() {
    static TestServer running(settings());
    return running;
  }
  static std::vector<std::int32_t> golden(const std::string& name) {
    return Golden(convert_golden("t5") / "logits.gguf").ints(name);
  }
  static std::string prompt() { return json::serialize(json::value_from(golden("tokens"))); }
  static std::string native(const std::string& prompt, const std::string& more = "") {
    return R"({"prompt":)" + prompt + R"(,"n_predict":24,"temperature":0,"return_tokens":true)" + more + "}";
  }
  static std::string openai(const std::string& prompt, const std::string& more = "") {
    return R"({"model":"tiny","prompt":)" + prompt + R"(,"max_tokens":24,"temperature":0)" + more + "}";
  }
  static std::string text() { return server().served()->model().tokenizer().decode(golden("generated")); }
};

TEST_F(EncoderDecoder, WritesTheTokensOfTransformers) {
  const json::object answer = server().post_json("/completion", native(prompt()));
  EXPECT_EQ(json::value_to<std::vector<std::int32_t>>(answer.at("tokens")), golden("generated"));
  EXPECT_EQ(str(answer.at("content")), text());
  EXPECT_EQ(answer.at("tokens_evaluated"), std::ssize(golden("tokens")));
  EXPECT_EQ(answer.at("tokens_cached"), 0);

  std::vector<std::int32_t> tokens;
  std::string joined;
  const HttpReply stream = server().post("/completion", native(prompt(), R"(,"stream":true)"));
  for (const json::object& event : events_of(stream.body)) {
    joined += str(event.at("content"));
    for (const json::value& token : event.at("tokens").as_array())
      tokens.push_back(token.to_number<std::int32_t>());
  }
  EXPECT_EQ(tokens, golden("generated"));
  EXPECT_EQ(joined, text());
}

TEST_F(EncoderDecoder, CompletionsOfOpenAiHaveTheSameText) {
  const json::object answer = server().post_json("/v1/completions", openai(prompt()));
  EXPECT_EQ(str(answer.at("choices").at(0).at("text")), text());
  EXPECT_EQ(answer.at("choices").at(0).at("finish_reason"), "length");
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), std::ssize(golden("tokens")));
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 24);

  std::string joined;
  const HttpReply stream = server().post("/v1/completions", openai(prompt(), R"(,"stream":true)"));
  for (const json::object& event : events_of(stream.body))
    joined += str(event.at("choices").at(0).at("text"));
  EXPECT_EQ(joined, text());
}

TEST_F(EncoderDecoder, RequestsAtOnceGetTheBytesOfEachAlone) {
  const std::string many = R"([)" + [] {
    std::string ids = "200";
    for (int i = 0; i < 150; ++i) ids += "," + std::to_string(10 + i * 7 % 300);
    return ids;
  }() + "]";
  const std::vector<std::string> bodies{native(prompt()), native(R"("the quick fox")"), native(many)};
  std::vector<json::value> alone;
  for (const std::string& body : bodies)
    alone.push_back(server().post_json("/completion", body).at("tokens"));
  EXPECT_NE(alone[0], alone[1]);
  std::list<HttpClient> clients;
  for (const std::string& body : bodies)
    clients.emplace_back(server().port()).send(request_text("POST", "/completion", body));
  auto client = clients.begin();
  for (const json::value& tokens : alone)
    EXPECT_EQ(json::parse((client++)->read_reply().body).at("tokens"), tokens);
}

TEST_F(EncoderDecoder, WhatAnEncoderCannotDoIsA400AndTheServerLives) {
  const auto refused = [](const std::string& path, const std::string& body, const std::string& why) {
    const HttpReply reply = server().post(path, body);
    EXPECT_EQ(reply.status, 400) << path << reply.body;
    EXPECT_NE(reply.body.find(why), std::string::npos) << path << reply.body;
  };
  const std::string chat =
      R"({"model":"tiny","max_tokens":4,"messages":[{"role":"user","content":"hello"}]})";
  for (const char* path : {"/v1/chat/completions", "/v1/messages", "/api/chat"})
    refused(path, chat, "no chat template");
  const std::string file = R"({"filename":"kept"})";
  for (const std::string action : {"save", "restore"})
    refused("/slots/0?action=" + action, file, "encoder reads prompts whole");
  refused("/v1/completions", openai(prompt(), R"(,"echo":true,"logprobs":1)"), "encoder gives none");
  refused("/completion", native(R"(")" + std::string(2000, 'x') + R"(")"), "context");
  EXPECT_EQ(str(server().post_json("/completion", native(prompt())).at("content")), text());
}

}  // namespace
}  // namespace quipu::test
