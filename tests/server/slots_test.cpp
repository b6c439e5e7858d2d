// Slots that are saved, restored and erased by name, as llama.cpp's server documents it
// (tools/server/README.md).
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include "server_fixture.hpp"

namespace quipu::test {
namespace {

namespace fs = std::filesystem;

ServerSettings with_slots(const fs::path& folder) {
  ServerSettings settings;
  settings.keep_slots = true;
  settings.file_bytes_per_step = 1;  // files are read a page at a time
  settings.server.slot_save_path = folder;
  return settings;
}

std::string ask(const std::string& prompt, int slot, int tokens = 4) {
  return R"({"prompt":")" + prompt + R"(","n_predict":)" + std::to_string(tokens) +
         R"(,"ignore_eos":true,"temperature":0,"return_tokens":true,"id_slot":)" + std::to_string(slot) + "}";
}
std::string named(const std::string& name) {
  return R"({"filename":)" + json::serialize(json::value(name)) + "}";
}

const std::string kPrompt(90, 'x');  // a token each

TEST(Slots, WhatASlotRemembersGoesThroughAFileToAnotherServer) {
  TemporaryFolder folder;
  json::object first;
  {
    TestServer server(with_slots(folder.path()));
    first = server.post_json("/completion", ask(kPrompt, 1));
    EXPECT_EQ(first.at("tokens_evaluated"), 90);
    EXPECT_EQ(first.at("tokens_cached"), 0);
    const json::object saved = server.post_json("/slots/1?action=save", named("mine.bin"));
    EXPECT_EQ(saved.at("id_slot"), 1);
    EXPECT_EQ(saved.at("filename"), "mine.bin");
    EXPECT_EQ(saved.at("n_saved"), 93) << "the prompt and three tokens: the fourth was never stored";
    EXPECT_EQ(saved.at("n_written"), fs::file_size(folder / "mine.bin"));
    // What is saved is still there.
    EXPECT_EQ(server.post_json("/completion", ask(kPrompt, 1)).at("tokens_cached"), 89);
  }
  TestServer server(with_slots(folder.path()));
  const json::object restored = server.post_json("/slots/0?action=restore", named("mine.bin"));
  EXPECT_EQ(restored.at("n_restored"), 93);
  EXPECT_EQ(restored.at("n_read"), fs::file_size(folder / "mine.bin"));
  const json::object again = server.post_json("/completion", ask(kPrompt, 0));
  EXPECT_EQ(again.at("tokens_cached"), 89) << "all but the last token of the prompt";
  EXPECT_EQ(again.at("tokens"), first.at("tokens"));
  // Others do not get what came from a file.
  EXPECT_EQ(server.post_json("/completion", ask(kPrompt, 2)).at("tokens_cached"), 0);
}

TEST(Slots, WithoutASlotNamedARequestGoesWhereMostOfItsPromptIs) {
  TemporaryFolder folder;
  TestServer server(with_slots(folder.path()));
  server.post_json("/completion", ask(kPrompt, 3));
  server.post_json("/slots/3?action=save", named("a"));
  EXPECT_EQ(server.post_json("/slots/3?action=erase", "").at("n_erased"), 93);
  server.post_json("/completion", ask("something else", 3));
  server.post_json("/slots/2?action=restore", named("a"));
  EXPECT_EQ(server.post_json("/completion", ask(kPrompt, -1)).at("tokens_cached"), 89);
}

TEST(Slots, AnEmptySlotSavesAndRestoresAsEmpty) {
  TemporaryFolder folder;
  TestServer server(with_slots(folder.path()));
  EXPECT_EQ(server.post_json("/slots/0?action=save", named("empty")).at("n_saved"), 0);
  EXPECT_EQ(server.post_json("/slots/0?action=restore", named("empty")).at("n_restored"), 0);
  EXPECT_EQ(server.post_json("/slots/0?action=erase", "").at("n_erased"), 0);
  EXPECT_EQ(server.post("/completion", ask("go on", 0)).status, 200);
}

TEST(Slots, ABusySlotIsSavedWhenItIsFree) {
  TemporaryFolder folder;
  ServerSettings settings = with_slots(folder.path());
  settings.context = 4096;
  TestServer server(settings);
  HttpClient busy(server.port()), saver(server.port());
  busy.send(request_text("POST", "/completion", ask("ab", 0, 300)));
  // It has the slot, and may have ended by now: then the slot is free, and the answer the same.
  ASSERT_TRUE(TestServer::wait_for<bool>(
      [&] { return server.served()->service->metrics().generated_tokens.value() > 0; }));
  saver.send(request_text("POST", "/slots/0?action=save", named("later")));
  EXPECT_EQ(json::parse(saver.read_reply().body).at("n_saved"), 301);
  EXPECT_EQ(busy.read_reply().status, 200);
}

TEST(Slots, DamagedForeignAndMissingFilesAreRefusedAndTheSlotStaysAsItWas) {
  TemporaryFolder folder;
  TestServer server(with_slots(folder.path()));
  server.post_json("/completion", ask(kPrompt, 0));
  server.post_json("/slots/0?action=save", named("good"));
  std::string bytes;
  {
    std::ifstream in(folder / "good", std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto write = [&](const std::string& name, std::string content) {
    std::ofstream(folder / name, std::ios::binary) << content;
  };
  write("cut", bytes.substr(0, bytes.size() / 2));
  write("short", bytes.substr(0, 20));
  write("nothing", "");
  std::string damaged = bytes;
  damaged[damaged.size() - 100] ^= 1;
  write("damaged", damaged);
  std::string other_model = bytes;
  other_model[24] ^= 1;  // of the fingerprint; the header's checksum no longer fits either
  write("other", other_model);
  fs::create_directory(folder / "folder");
  for (const std::string name : {"cut", "short", "nothing", "damaged", "other"}) {
    const HttpReply reply = server.post("/slots/0?action=restore", named(name));
    EXPECT_EQ(reply.status, 400) << name << reply.body;
    EXPECT_NE(reply.body.find(name), std::string::npos) << reply.body;
  }
  for (const std::string name : {"missing", "folder"})
    EXPECT_EQ(server.post("/slots/0?action=restore", named(name)).status, 404) << name;
  EXPECT_EQ(server.post_json("/completion", ask(kPrompt, 0)).at("tokens_cached"), 89);
}

TEST(Slots, NamesThatArePathsAreRefused) {
  TemporaryFolder folder;
  TestServer server(with_slots(folder.path()));
  server.post_json("/completion", ask("abc", 0));
  for (const std::string name :
       {"", ".", "..", "../x", "/etc/passwd", "a/b", "a\\b", "C:x", ".hidden", "a\nb", "a.tmp-7-0"}) {
    for (const std::string action : {"save", "restore"}) {
      const HttpReply reply = server.post("/slots/0?action=" + action, named(name));
      EXPECT_EQ(reply.status, 400) << name;
      EXPECT_NE(reply.body.find("plain file name"), std::string::npos) << reply.body;
    }
  }
  EXPECT_EQ(server.post("/slots/0?action=save", named(std::string(256, 'a'))).status, 400);
  EXPECT_EQ(server.post("/slots/0?action=save", R"({"filename":7})").status, 400);
  EXPECT_EQ(server.post("/slots/0?action=save", "{}").status, 400);
  EXPECT_EQ(server.post("/slots/0?action=explode", named("a")).status, 400);
  EXPECT_EQ(server.post("/slots/0", named("a")).status, 400);
  EXPECT_EQ(server.post("/slots/99?action=save", named("a")).status, 400);
  EXPECT_EQ(server.post("/slots/-1?action=save", named("a")).status, 400);
  EXPECT_EQ(server.post("/completion", ask("abc", 4)).status, 400);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Slots, AFullDiskLeavesNoHalfFileAndTheSlotAsItWas) {
  TemporaryFolder folder;
  TestServer server(with_slots(folder.path()));
  server.post_json("/completion", ask(kPrompt, 0));
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const HttpReply full = server.post("/slots/0?action=save", named("a"));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(full.status, 500) << full.body;
  EXPECT_TRUE(fs::is_empty(folder.path()));
  EXPECT_EQ(server.post_json("/slots/0?action=save", named("a")).at("n_saved"), 93);
}

TEST(Slots, WithoutAFolderThereIsNothingToSave) {
  TestServer server;
  const HttpReply reply = server.post("/slots/0?action=save", named("a"));
  EXPECT_EQ(reply.status, 501);
  EXPECT_EQ(json::parse(reply.body).at("error").at("type"), "not_supported_error");
}

TEST(Slots, PagesOfSlotsGoToThoseThatNeedThem) {
  TemporaryFolder folder;
  ServerSettings settings = with_slots(folder.path());
  settings.pool_pages = 8;  // one whole context of 512
  TestServer server(settings);
  for (int slot = 0; slot < 4; ++slot)
    EXPECT_EQ(server.post("/completion", ask(std::string(200, static_cast<char>('a' + slot)), slot)).status,
              200);
  std::vector<std::thread> savers;
  for (int slot = 0; slot < 4; ++slot)
    savers.emplace_back([&server, slot] {
      server.post("/slots/" + std::to_string(slot) + "?action=save", named("s" + std::to_string(slot)));
    });
  EXPECT_EQ(server.post("/completion", ask(std::string(400, 'z'), -1, 100)).status, 200);
  for (std::thread& saver : savers) saver.join();
  EXPECT_TRUE(server.becomes_idle());
}

TEST(Slots, HigherPriorityStartsFirst) {
  ServerSettings settings;
  settings.sequences = 1;
  settings.context = 16384;
  TestServer server(settings);
  auto& service = *server.served()->service;
  std::vector<int> order;  // the engine's thread only
  const auto submit = [&](int priority, std::int64_t tokens) {
    std::vector<server::Job> jobs(1);
    jobs[0].request.prompt = {97, 98};
    jobs[0].request.max_tokens = tokens;
    jobs[0].request.ignore_eos = true;
    jobs[0].priority = priority;
    jobs[0].on_done = [&order, priority](const engine::Result&) { order.push_back(priority); };
    return service.submit(std::move(jobs)).front();
  };
  const server::JobId first = submit(7, -1);
  ASSERT_TRUE(TestServer::wait_for<bool>([&] { return service.running() == 1; }));
  for (const int priority : {0, -3, 5}) submit(priority, 2);
  service.cancel(first);
  ASSERT_TRUE(service.wait_idle(std::chrono::seconds(30)));
  EXPECT_EQ(order, (std::vector<int>{7, 5, 0, -3}));
  EXPECT_EQ(server.post("/completion", R"({"prompt":"a","priority":101})").status, 400);
}

}  // namespace
}  // namespace quipu::test
