// /lora-adapters and "lora" in requests, as llama.cpp's server documents them.
#include <gtest/gtest.h>

#include "server_fixture.hpp"
#include "tiny_adapter.hpp"

namespace quipu::test {
namespace {

TestServer& adapter_server() {
  static TestServer server([] {
    ServerSettings settings;
    settings.adapters = [](const models::Model& model) {
      return std::vector{random_adapter(model, 1, 4), random_adapter(model, 2, 3)};
    };
    return settings;
  }());
  return server;
}

/// A prompt of more than a page, so that a wrongly shared prefix would show.
std::string answer(const std::string& more) {
  const std::string prompt(200, 'x');
  const json::object reply = adapter_server().post_json(
      "/completion",
      R"({"n_predict":24,"temperature":0,"ignore_eos":true,"prompt":")" + prompt + "\"" + more + "}");
  return json::serialize(reply.at("content"));
}

TEST(ServerAdapters, AreListedAndTheirScalesSet) {
  EXPECT_EQ(adapter_server().get("/lora-adapters").body,
            R"([{"id":0,"path":"a.gguf","scale":1E0},{"id":1,"path":"b.gguf","scale":5E-1}])");
  const std::string as_set_up = answer("");
  EXPECT_EQ(answer(R"(,"lora":[{"id":0,"scale":1},{"id":1,"scale":0.5}])"), as_set_up);
  const std::string first = answer(R"(,"lora":[{"id":0,"scale":1}])"), none = answer(R"(,"lora":[])");
  EXPECT_NE(first, as_set_up);
  EXPECT_NE(first, none);
  // One that the list leaves out has scale 0.
  EXPECT_EQ(adapter_server().post("/lora-adapters", R"([{"id":0,"scale":1}])").body, R"({"success":true})");
  EXPECT_EQ(answer(""), first);
  EXPECT_EQ(adapter_server().post("/lora-adapters", "[]").status, 200);
  EXPECT_EQ(answer(""), none);
  EXPECT_EQ(adapter_server().post("/lora-adapters", R"([{"id":0,"scale":1},{"id":1,"scale":0.5}])").status,
            200);
  EXPECT_EQ(answer(""), as_set_up);
}

TEST(ServerAdapters, EveryDialectTakesThem) {
  const auto chat = [](const std::string& more) {
    const json::object reply = adapter_server().post_json(
        "/v1/chat/completions",
        R"({"model":"tiny","max_tokens":20,"temperature":0,"ignore_eos":true,"messages":[{"role":"user","content":"hello"}])" +
            more + "}");
    return json::serialize(reply.at("choices").at(0).at("message").at("content"));
  };
  EXPECT_EQ(chat(""), chat(R"(,"lora":[{"id":1,"scale":0.5},{"id":0,"scale":1}])"));
  EXPECT_NE(chat(""), chat(R"(,"lora":[{"id":1,"scale":0.5}])"));
}

TEST(ServerAdapters, BadListsAreRefusedByTheField) {
  const auto refusal = [](const std::string& list) {
    const HttpReply reply =
        adapter_server().post("/completion", R"({"prompt":"x","n_predict":1,"lora":)" + list + "}");
    EXPECT_EQ(reply.status, 400) << reply.body;
    return reply.body;
  };
  EXPECT_NE(refusal(R"([{"id":2,"scale":1}])").find("lora[0].id"), std::string::npos);
  EXPECT_NE(refusal(R"([{"id":0}])").find("scale"), std::string::npos);
  EXPECT_NE(refusal(R"([{"id":0,"scale":1},{"id":0,"scale":2}])").find("second time"), std::string::npos);
  EXPECT_NE(refusal(R"([{"id":0,"scale":1e300}])").find("too large"), std::string::npos);
  EXPECT_NE(refusal("[3]").find("lora[0]"), std::string::npos);
  EXPECT_NE(refusal("{}").find("lora"), std::string::npos);
  EXPECT_EQ(adapter_server().post("/lora-adapters", R"({"id":0})").status, 400);
}

TEST(ServerAdapters, SavedSlotsGoWithTheirAdapters) {
  TemporaryFolder folder;
  ServerSettings settings;
  settings.keep_slots = true;
  settings.server.slot_save_path = folder.path();
  settings.prefix_cache = false;  // what is found computed comes from the slot
  settings.adapters = [](const models::Model& model) {
    return std::vector{random_adapter(model, 1, 4), random_adapter(model, 2, 3)};
  };
  TestServer server(settings);
  const auto ask = [&](int slot, const std::string& more) {
    return server.post_json("/completion", R"({"n_predict":8,"temperature":0,"ignore_eos":true,"prompt":")" +
                                               std::string(90, 'x') + R"(","id_slot":)" +
                                               std::to_string(slot) + more + "}");
  };
  const auto restore = [&](const std::string& more) {
    return server.post("/slots/1?action=restore", R"({"filename":"a")" + more + "}").status;
  };
  const std::string one = R"(,"lora":[{"id":0,"scale":1}])";
  for (const std::string& lora : {std::string(), one}) {
    const json::object first = ask(0, lora);
    EXPECT_EQ(server.post("/slots/0?action=save", R"({"filename":"a"})").status, 200);
    EXPECT_EQ(restore(lora), 200) << lora;
    EXPECT_EQ(restore(lora.empty() ? one : ""), 400) << "saved with others";
    const json::object again = ask(1, lora);
    EXPECT_EQ(again.at("tokens_cached"), 89) << lora;
    EXPECT_EQ(again.at("content"), first.at("content")) << lora;
  }
  EXPECT_EQ(restore(R"(,"lora":[{"id":7,"scale":1}])"), 400);
}

}  // namespace
}  // namespace quipu::test
