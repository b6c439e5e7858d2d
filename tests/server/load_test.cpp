// Many clients at once: the same bytes as alone, cancelling, full queues, shutting down.
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "core/philox.hpp"
#include "server_fixture.hpp"

namespace quipu::test {
namespace {

std::string completion(std::uint64_t seed, std::size_t length, int tokens) {
  std::string prompt =
      "the system prompt that they share, long enough for two pages of the cache or more; it "
      "goes on and on for a while, until all of the words have been said that there are. ";
  if (seed % 3 == 0) prompt.clear();
  for (std::size_t i = 0; i < length; ++i)
    prompt += static_cast<char>('a' + static_cast<int>(philox_uniform(seed, i) * 26));
  return R"({"prompt":")" + prompt + R"(","n_predict":)" + std::to_string(tokens) +
         R"(,"ignore_eos":true,"return_tokens":true,"temperature":1,"seed":)" + std::to_string(seed) + "}";
}

std::string answer_of(TestServer& server, const std::string& body) {
  const HttpReply reply = server.post("/completion", body);
  if (reply.status != 200) return std::to_string(reply.status) + " " + reply.body;
  return json::serialize(json::parse(reply.body).at("tokens"));
}

TEST(Load, AnswersAreTheSameBytesAloneAndInACrowdThatIsShortOfMemory) {
  std::vector<std::string> bodies;
  for (std::uint64_t i = 0; i < 24; ++i)
    bodies.push_back(completion(i % 20, 5 + (i * 37) % 200, 8 + static_cast<int>(i % 12)));
  std::vector<std::string> alone;
  {
    ServerSettings settings;
    settings.prefix_cache = false;
    TestServer server(settings);
    for (const std::string& body : bodies) alone.push_back(answer_of(server, body));
  }
  ServerSettings settings;
  settings.sequences = 8;
  settings.pool_pages = 16;  // a quarter of what eight contexts would need
  TestServer server(settings);
  for (int round = 0; round < 2; ++round) {  // the second time from the prefix cache
    std::vector<std::future<std::string>> answers;
    for (const std::string& body : bodies)
      answers.push_back(std::async(std::launch::async, [&server, body] { return answer_of(server, body); }));
    for (std::size_t i = 0; i < bodies.size(); ++i) EXPECT_EQ(answers[i].get(), alone[i]) << i;
  }
  EXPECT_TRUE(server.becomes_idle());
  EXPECT_GT(server.served()->service->metrics().cached_tokens.value(), 0u);
}

/// A request whose settings follow from its number: text, probabilities, grammar, stop string, streamed or
/// not.
std::string random_request(std::uint64_t number) {
  const auto chance = [number](std::uint64_t what) { return philox_uniform(number + 1000, what); };
  std::string body = completion(number % 40, static_cast<std::size_t>(chance(1) * 250),
                                2 + static_cast<int>(chance(2) * 20));
  body.pop_back();
  if (chance(3) < 0.3) body += R"(,"n_probs":3)";
  if (chance(4) < 0.2) body += R"(,"grammar":"root ::= [a-f]{3,9} \"!\"")";
  if (chance(5) < 0.2) body += R"(,"stop":["e","zz"])";
  if (chance(6) < 0.2) body += R"(,"cache_prompt":false)";
  if (chance(7) < 0.3) body += R"(,"repeat_penalty":1.3)";
  return body + (chance(8) < 0.5 ? R"(,"stream":true})" : "}");
}

/// What must not depend on others: text, tokens and probabilities.
std::string essence(TestServer& server, const std::string& body) {
  const HttpReply reply = server.post("/completion", body);
  if (reply.status != 200) return std::to_string(reply.status) + " " + reply.body;
  std::vector<json::object> events = events_of(reply.body);
  if (events.empty()) events.push_back(json::parse(reply.body).as_object());
  std::string text, rest;
  json::array tokens, probabilities;
  for (const json::object& event : events) {
    text += str(event.at("content"));
    for (const json::value& token : event.at("tokens").as_array()) tokens.push_back(token);
    if (const json::value* list = event.if_contains("completion_probabilities"))
      for (const json::value& item : list->as_array()) probabilities.push_back(item);
    if (event.at("stop").as_bool()) rest = str(event.at("stop_type"));
  }
  return text + json::serialize(tokens) + json::serialize(probabilities) + rest;
}

TEST(Load, RandomMixesWithSomeCancelledAnswerAsEachAlone) {
  constexpr std::uint64_t kRequests = 60, kTogether = 15;
  std::vector<std::string> bodies, alone;
  for (std::uint64_t i = 0; i < kRequests; ++i) bodies.push_back(random_request(i));
  {
    ServerSettings settings;
    settings.prefix_cache = false;
    settings.sequences = 1;
    TestServer server(settings);
    for (const std::string& body : bodies) alone.push_back(essence(server, body));
  }
  TemporaryFolder folder;
  ServerSettings settings;
  settings.sequences = 6;
  settings.pool_pages = 12;
  settings.page_store = folder.path().string();
  settings.file_bytes_per_step = 1;  // a page a step
  settings.keep_slots = true;
  TestServer server(settings);
  for (std::uint64_t begin = 0; begin < kRequests; begin += kTogether) {
    std::vector<std::future<std::string>> answers;
    for (std::uint64_t i = begin; i < begin + kTogether; ++i) {
      const bool cancelled = philox_uniform(i, 99) < 0.25;
      answers.push_back(std::async(std::launch::async, [&server, body = bodies[i], cancelled, i] {
        if (!cancelled) return essence(server, body);
        HttpClient client(server.port());
        client.send(request_text("POST", "/completion", body));
        std::this_thread::sleep_for(std::chrono::milliseconds(i % 5));
        client.close();
        return std::string();
      }));
    }
    for (std::uint64_t i = begin; i < begin + kTogether; ++i) {
      const std::string answer = answers[i - begin].get();
      if (answer.empty()) continue;  // cancelled
      EXPECT_EQ(answer, alone[i]) << bodies[i];
    }
  }
  EXPECT_TRUE(server.becomes_idle());
}

TEST(Load, ChoicesOfOneRequestReadTheirPromptOnce) {
  TestServer server;
  const json::object answer =
      server.post_json("/v1/completions", R"({"prompt":")" + std::string(400, 'x') +
                                              R"(","n":4,"max_tokens":1,"ignore_eos":true})");
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), 400);
  const auto& metrics = server.served()->service->metrics();
  // Six full pages of 64 are shared; each choice reads the rest, 16 tokens, by itself.
  EXPECT_EQ(metrics.computed_rows.value(), 400u + 3u * 16u);
  EXPECT_EQ(metrics.cached_tokens.value(), 3u * 384u);
}

TEST(Load, CachedTokensTellTheTruth) {
  TestServer server;
  const std::string body = R"({"messages":[{"role":"user","content":")" + std::string(200, 'y') +
                           R"("}],"max_tokens":1,"temperature":0})";
  const json::object first = server.post_json("/v1/chat/completions", body);
  const json::object second = server.post_json("/v1/chat/completions", body);
  EXPECT_EQ(first.at("usage").at("prompt_tokens_details").at("cached_tokens"), 0);
  EXPECT_EQ(second.at("usage").at("prompt_tokens_details").at("cached_tokens"),
            first.at("usage").at("prompt_tokens").as_int64() - 1);
  EXPECT_EQ(first.at("choices"), second.at("choices"));
  const json::object without =
      server.post_json("/v1/chat/completions", body.substr(0, body.size() - 1) + R"(,"cache_prompt":false})");
  EXPECT_EQ(without.at("usage").at("prompt_tokens_details").at("cached_tokens"), 0);
}

TEST(Load, ComputedPromptsSurviveARestartInAFolderAndDamagedOnesAreComputedAgain) {
  TemporaryFolder folder;
  ServerSettings settings;
  settings.page_store = folder.path().string();
  const std::string body = R"({"prompt":")" + std::string(267, 'x') +
                           R"(","n_predict":8,"ignore_eos":true,"return_tokens":true,"temperature":0})";
  const auto ask = [&](std::int64_t& cached) {
    TestServer server(settings);
    const json::object answer = server.post_json("/completion", body);
    cached = answer.at("tokens_cached").as_int64();
    return json::serialize(answer.at("tokens"));
  };
  settings.file_bytes_per_step = 1;
  std::int64_t first = -1, second = -1, third = -1;
  const std::string alone = ask(first);
  EXPECT_EQ(ask(second), alone);
  for (const auto& item : std::filesystem::recursive_directory_iterator(folder.path())) {
    if (item.is_regular_file()) std::filesystem::resize_file(item.path(), 100);
  }
  EXPECT_EQ(ask(third), alone);
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 256) << "four pages of the prompt's 267 tokens";
  EXPECT_EQ(third, 0);
}

ServerSettings endless() {
  ServerSettings settings;
  settings.context = 16384;
  settings.sequences = 2;
  settings.queue = 3;
  return settings;
}
const std::string kEndless = R"({"prompt":"ab","n_predict":-1,"ignore_eos":true,"stream":true})";
const std::string kEndlessWhole = R"({"prompt":"ab","n_predict":-1,"ignore_eos":true})";

TEST(Load, AClientThatGoesAwayIsCancelled) {
  TestServer server(endless());
  for (int i = 0; i < 5; ++i) {
    HttpClient streamed(server.port());
    streamed.send(request_text("POST", "/completion", kEndless));
    streamed.read_reply([](std::string_view body) { return body.size() < 300; });
    streamed.close();
    HttpClient whole(server.port());
    whole.send(request_text("POST", "/completion", kEndlessWhole));
    TestServer::wait_for<bool>([&] { return server.served()->service->running() > 0; });
    whole.close();
  }
  EXPECT_TRUE(server.becomes_idle());
  EXPECT_GE(server.served()->service->metrics().cancelled.value(), 5u);
  EXPECT_LT(server.served()->service->metrics().generated_tokens.value(), 10u * 16384u);
}

TEST(Load, OneWhoLeavesTheQueueNeverStarts) {
  TestServer server(endless());
  HttpClient first(server.port()), second(server.port()), third(server.port());
  for (HttpClient* client : {&first, &second}) client->send(request_text("POST", "/completion", kEndless));
  auto& service = *server.served()->service;
  ASSERT_TRUE(TestServer::wait_for<bool>([&] { return service.running() == 2; }));
  third.send(request_text("POST", "/completion", kEndlessWhole));
  ASSERT_TRUE(TestServer::wait_for<bool>([&] { return service.queued() == 1; }));
  third.close();
  ASSERT_TRUE(TestServer::wait_for<bool>([&] { return service.queued() == 0; }));
  EXPECT_EQ(service.metrics().cancelled.value(), 1u);
  EXPECT_EQ(service.running(), 2u);
}

TEST(Load, ACancelRightBehindItsRequestIsNotLost) {
  TestServer server(endless());
  auto& service = *server.served()->service;
  for (int i = 0; i < 100; ++i) {
    server::Job job;
    job.request.prompt = {97, 98};
    job.request.ignore_eos = true;
    std::vector<server::Job> jobs;
    jobs.push_back(std::move(job));
    service.cancel(service.submit(std::move(jobs)).front());
    ASSERT_TRUE(service.wait_idle(std::chrono::seconds(30))) << i;
  }
}

TEST(Load, BeyondTheQueueThereIs429AndOperationsStillAnswer) {
  TestServer server(endless());
  std::vector<std::unique_ptr<HttpClient>> clients;
  auto& service = *server.served()->service;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server.port()));
    clients.back()->send(request_text("POST", "/completion", kEndless));
  }
  // In this order: three may wait before the first two of the five have started.
  ASSERT_TRUE(TestServer::wait_for<bool>([&] { return service.running() == 2 && service.queued() == 3; }));
  const HttpReply busy = server.post("/v1/completions", R"({"prompt":"a"})");
  EXPECT_EQ(busy.status, 429);
  EXPECT_GE(std::stoi(busy.headers.at("retry-after")), 1);
  EXPECT_EQ(json::parse(busy.body).at("error").at("code"), "rate_limit_exceeded");
  EXPECT_EQ(server.get("/health").status, 200);
  const std::string metrics = server.get("/metrics").body;
  EXPECT_NE(metrics.find("quipu_queue_length{model=\"tiny\"} 3\n"), std::string::npos);
  EXPECT_NE(metrics.find("quipu_running_sequences{model=\"tiny\"} 2\n"), std::string::npos);
  EXPECT_NE(metrics.find("quipu_rejected_total{model=\"tiny\"} 1\n"), std::string::npos);
  int processing = 0;
  const json::value slots = json::parse(server.get("/slots").body);
  for (const json::value& slot : slots.as_array()) processing += slot.at("is_processing").as_bool() ? 1 : 0;
  EXPECT_EQ(processing, 2);
}

TEST(Load, DrainingFinishesWhatRunsAndRefusesTheRest) {
  ServerSettings settings;
  settings.context = 4096;
  TestServer server(settings);
  server.served();
  HttpClient client(server.port()), idle(server.port());
  const std::string body = R"({"prompt":"ab","n_predict":400,"ignore_eos":true,"stream":true})";
  client.send(request_text("POST", "/completion", body));
  ASSERT_TRUE(TestServer::wait_for<bool>(
      [&] { return server.served()->service->metrics().generated_tokens.value() > 0; }));
  std::future<bool> drained =
      std::async(std::launch::async, [&] { return server.server().drain(std::chrono::seconds(60)); });
  const HttpReply reply = client.read_reply();
  EXPECT_TRUE(reply.complete);
  EXPECT_EQ(events_of(reply.body).back().at("tokens_predicted"), 400);
  EXPECT_TRUE(drained.get());
  EXPECT_EQ(idle.receive(), "") << "idle connections end";
  EXPECT_EQ(HttpClient(server.port()).read_reply().status, 0) << "nobody listens any more";
}

TEST(Load, DrainingGivesUpAtItsDeadlineWithAnError) {
  TestServer server(endless());
  HttpClient client(server.port());
  client.send(request_text("POST", "/completion", kEndlessWhole));
  ASSERT_TRUE(TestServer::wait_for<bool>([&] { return server.served()->service->running() == 1; }));
  EXPECT_FALSE(server.server().drain(std::chrono::milliseconds(50)));
  EXPECT_EQ(client.read_reply().status, 503);
}

TEST(Load, RequestsWaitForTheModelAndHealthTellsThatItLoads) {
  ServerSettings settings;
  settings.load_delay = std::chrono::milliseconds(300);
  TestServer server(settings);
  EXPECT_EQ(server.get("/health").status, 503);
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt":"a","max_tokens":1})").status, 200);
  EXPECT_EQ(server.get("/health").status, 200);
}

TEST(Load, SilentStreamsGetAHeartbeat) {
  ServerSettings settings = endless();
  settings.server.heartbeat = std::chrono::milliseconds(50);
  settings.sequences = 1;
  TestServer server(settings);
  HttpClient first(server.port()), second(server.port());
  first.send(request_text("POST", "/completion", kEndless));
  ASSERT_TRUE(TestServer::wait_for<bool>([&] { return server.served()->service->running() == 1; }));
  second.send(request_text("POST", "/completion", kEndless));  // waits for its place
  const HttpReply reply =
      second.read_reply([](std::string_view body) { return body.find("waiting") == std::string::npos; });
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, ": waiting\n\n");
}

}  // namespace
}  // namespace quipu::test
