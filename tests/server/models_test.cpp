// Several models: loaded when asked for, one at a time, unloaded when idle or short of memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <future>

#include "server_fixture.hpp"

namespace quipu::test {
namespace {

namespace fs = std::filesystem;

std::string ask(const std::string& model, int tokens = 6) {
  return R"({"model":")" + model + R"(","prompt":"hello","n_predict":)" + std::to_string(tokens) +
         R"(,"ignore_eos":true,"temperature":0,"return_tokens":true})";
}
std::string tokens_of(TestServer& server, const std::string& model) {
  const HttpReply reply = server.post("/completion", ask(model));
  EXPECT_EQ(reply.status, 200) << reply.body;
  return json::serialize(json::parse(reply.body).at("tokens"));
}
std::vector<std::string> loaded(TestServer& server) {
  std::vector<std::string> names;
  for (const auto& listed : server.server().models().list()) {
    if (listed.served) names.push_back(listed.entry.id);
  }
  return names;
}
using Names = std::vector<std::string>;

ServerSettings three(std::size_t most) {
  ServerSettings settings;
  settings.further = {"second", "third"};
  settings.models.most_loaded = most;
  settings.models.preload = false;
  return settings;
}

TEST(SeveralModels, EachIsLoadedWhenARequestNamesIt) {
  TestServer server(three(3));
  EXPECT_EQ(loaded(server), Names{});
  EXPECT_EQ(server.get("/health").status, 200);
  const std::string second = tokens_of(server, "second");
  EXPECT_EQ(loaded(server), Names{"second"});
  EXPECT_NE(second, tokens_of(server, "third")) << "other weights give another answer";
  EXPECT_EQ(tokens_of(server, "second"), second);
  EXPECT_EQ(loaded(server), (Names{"second", "third"}));
  // The dialects list all, and tell which are there.
  const json::value list = json::parse(server.get("/v1/models").body);
  std::string states;
  for (const json::value& model : list.at("data").as_array())
    states += str(model.at("id")) + "=" + str(model.at("status").at("value")) + " ";
  EXPECT_EQ(states, "tiny=unloaded second=loaded third=loaded ");
  EXPECT_EQ(json::parse(server.get("/api/tags").body).at("models").as_array().size(), 3u);
  EXPECT_EQ(json::parse(server.get("/api/ps").body).at("models").as_array().size(), 2u);
}

TEST(SeveralModels, TheOneIdleLongestMakesRoom) {
  TestServer server(three(2));
  for (const char* model : {"tiny", "second", "tiny", "third"}) {
    // Nobody holds the others any more: only then is it the time that decides.
    EXPECT_TRUE(TestServer::wait_for<bool>([&] {
      const auto all = server.server().models().list();
      return std::all_of(all.begin(), all.end(),
                         [](const auto& listed) { return listed.served.use_count() <= 2; });
    }));
    tokens_of(server, model);
  }
  EXPECT_EQ(loaded(server), (Names{"tiny", "third"}));
}

TEST(SeveralModels, RequestsWaitForRoomAndDoNotFail) {
  TestServer server(three(1));
  std::vector<std::string> alone;
  for (const char* model : {"tiny", "second", "third"}) alone.push_back(tokens_of(server, model));
  std::vector<std::future<std::string>> answers;
  for (int i = 0; i < 12; ++i)
    answers.push_back(std::async(std::launch::async, [&server, i] {
      return tokens_of(server, std::array{"tiny", "second", "third"}[static_cast<std::size_t>(i % 3)]);
    }));
  for (std::size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i].get(), alone[i % 3]) << i;
}

TEST(SeveralModels, AMemoryBudgetUnloadsOthersAndOneThatNeverFitsIs503) {
  ServerSettings settings = three(3);
  settings.pool_pages = 8;
  std::uint64_t one = 0;
  {
    TestServer server(settings);
    tokens_of(server, "tiny");
    const engine::MemoryReport& memory = server.served()->service->memory();
    one = memory.weights + memory.kv + memory.scratch;
  }
  settings.memory = one * 5 / 2;
  TestServer server(settings);
  for (const char* model : {"tiny", "second", "third"}) tokens_of(server, model);
  EXPECT_EQ(loaded(server), (Names{"second", "third"}));
  settings.memory = one / 2;
  TestServer small(settings);
  const HttpReply reply = small.post("/v1/completions", R"({"model":"second","prompt":"a"})");
  EXPECT_EQ(reply.status, 503);
  EXPECT_NE(reply.body.find("second could not be loaded"), std::string::npos) << reply.body;
}

TEST(SeveralModels, AMalformedFileIs400AndTheLoadedOneStillAnswers) {
  // 37 bytes: no tensors, one key of length 0 with a boolean (llama.cpp issue 24884).
  std::string bytes("GGUF\3\0\0\0", 8);
  bytes += std::string(8, '\0') + '\1' + std::string(7, '\0') + std::string(8, '\0') +
           std::string("\7\0\0\0\1", 5);
  ASSERT_EQ(bytes.size(), 37u);
  TestServer server(three(3));
  const std::string before = tokens_of(server, "tiny");
  std::ofstream(server.folder() / "third.gguf", std::ios::binary) << bytes;
  for (const std::string path : {"/v1/completions", "/completion", "/api/generate"}) {
    const HttpReply reply = server.post(path, R"({"model":"third","prompt":"a"})");
    EXPECT_EQ(reply.status, 400) << path;
    EXPECT_NE(reply.body.find("third could not be loaded"), std::string::npos) << reply.body;
  }
  EXPECT_EQ(tokens_of(server, "tiny"), before);
  EXPECT_EQ(server.get("/health").status, 200);
  fs::remove(server.folder() / "third.gguf");
  EXPECT_EQ(server.post("/completion", ask("third")).status, 404);
}

TEST(SeveralModels, UnknownOnesAre404InTheDialectsForm) {
  TestServer server(three(3));
  const HttpReply openai = server.post("/v1/chat/completions", R"({"model":"x","messages":[]})");
  EXPECT_EQ(openai.status, 404);
  EXPECT_EQ(json::parse(openai.body).at("error").at("code"), "model_not_found");
  const HttpReply ollama = server.post("/api/chat", R"({"model":"x"})");
  EXPECT_EQ(ollama.status, 404);
  EXPECT_TRUE(json::parse(ollama.body).at("error").is_string());
  EXPECT_EQ(server.get("/v1/models/x").status, 404);
}

TEST(SeveralModels, WhatAppearsLaterIsFound) {
  ServerSettings settings;
  settings.models.most_loaded = 2;
  auto later = std::make_shared<std::vector<server::ModelEntry>>();
  settings.models.discover = [later] { return *later; };
  TestServer server(settings);
  EXPECT_EQ(server.post("/completion", ask("new")).status, 404);
  fs::copy_file(server.folder() / "tiny.gguf", server.folder() / "new.gguf");
  later->push_back({"new", {}, server.folder() / "new.gguf"});
  EXPECT_EQ(tokens_of(server, "new"), tokens_of(server, "tiny"));
}

TEST(SeveralModels, IdleOnesAreUnloadedAsKeepAliveSays) {
  TestServer server(three(3));
  const auto generate = [&](const std::string& more) {
    return server.post_json("/api/generate", R"({"model":"second","stream":false,)" + more + "}");
  };
  EXPECT_EQ(generate(R"("keep_alive":"5m")").at("done_reason"), "load");
  EXPECT_EQ(loaded(server), Names{"second"});
  const json::value ps = json::parse(server.get("/api/ps").body);
  EXPECT_FALSE(str(ps.at("models").at(0).at("expires_at")).empty());
  EXPECT_EQ(generate(R"("keep_alive":0)").at("done_reason"), "unload");
  EXPECT_TRUE(TestServer::wait_for<bool>([&] { return loaded(server).empty(); }));
  for (const std::string bad :
       {R"("keep_alive":"soon")", R"("keep_alive":"5x")", R"("keep_alive":"")", R"("keep_alive":[])"})
    EXPECT_EQ(server.post("/api/generate", R"({"model":"second",)" + bad + "}").status, 400) << bad;
  // What is not loaded is not loaded to be unloaded.
  EXPECT_EQ(generate(R"("keep_alive":"0")").at("done_reason"), "unload");
  EXPECT_EQ(loaded(server), Names{});
  // What was said holds until the model is unloaded.
  generate(R"("prompt":"a","options":{"num_predict":1})");
  server.server().models().tick();
  EXPECT_EQ(loaded(server), Names{"second"});
  generate(R"("prompt":"a","options":{"num_predict":1},"keep_alive":-1)");
  EXPECT_EQ(loaded(server), Names{"second"});
}

TEST(SeveralModels, KeepAliveHoldsForChatsAndVectorsToo) {
  TestServer server(three(3));
  const std::string chat =
      R"("messages":[{"role":"user","content":"a"}],"options":{"num_predict":1},"stream":false)";
  for (const auto& request :
       std::vector<std::pair<std::string, std::string>>{{"/api/chat", chat},
                                                        {"/api/chat", R"("messages":[])"},
                                                        {"/api/embed", R"("input":"a")"},
                                                        {"/api/embeddings", R"("prompt":"a")"}}) {
    const std::string &path = request.first, &content = request.second;
    const auto ask = [&](const std::string& keep) {
      return server.post(path, R"({"model":"second:latest",)" + content + R"(,"keep_alive":)" + keep + "}")
          .status;
    };
    EXPECT_EQ(ask("-1"), 200) << path;
    server.server().models().tick();
    EXPECT_EQ(loaded(server), Names{"second"}) << path;
    EXPECT_EQ(ask("0"), 200) << path;
    EXPECT_TRUE(TestServer::wait_for<bool>([&] {
      server.server().models().tick();
      return loaded(server).empty();
    })) << path;
    EXPECT_EQ(ask("\"soon\""), 400) << path;
  }
}

}  // namespace
}  // namespace quipu::test
