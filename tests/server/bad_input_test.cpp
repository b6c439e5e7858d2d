// Hostile and careless clients: the right status, a clear message, and a server that lives on.
#include <gtest/gtest.h>

#include "server_fixture.hpp"

namespace quipu::test {
namespace {

TestServer& hostile_server() {
  static ServerSettings settings = [] {
    ServerSettings s;
    auto& limits = s.server.http.limits;
    limits.header = std::chrono::milliseconds(300);
    limits.body = std::chrono::milliseconds(300);
    limits.body_rate = 1 << 20;
    limits.body_bytes = 1 << 20;
    limits.header_bytes = 8 << 10;
    return s;
  }();
  static TestServer server(settings);
  server.served();  // loaded
  return server;
}

void expect_alive() { EXPECT_EQ(hostile_server().get("/health").status, 200); }

struct Case {
  std::string path, body;
  int status;
  std::string message;  ///< part of it
};

TEST(BadInput, EachGetsItsStatusAndASentenceThatNamesIt) {
  const std::string chat = "/v1/chat/completions", complete = "/v1/completions", own = "/completion";
  const std::vector<Case> cases = {
      {chat, "", 400, "not valid JSON"},
      {chat, "{", 400, "not valid JSON"},
      {chat, "[]", 400, "an array, expected an object"},
      {chat, "{\"messages\":[]} x", 400, "not valid JSON"},
      {chat, "{\"messages\":\"\xff\"}", 400, "not valid UTF-8 at byte 13"},
      {chat, "{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}", 400, "nests deeper"},
      {chat, "{}", 400, "\"messages\" is missing"},
      {chat, R"({"messages":[]})", 400, "\"messages\" is empty"},
      {chat, R"({"messages":7})", 400, "\"messages\" is a number, expected an array"},
      {chat, R"({"messages":["x"]})", 400, "messages[0] is a text, expected an object"},
      {chat, R"({"messages":[{"content":"x"}]})", 400, "messages[0] has no \"role\""},
      {chat, R"({"messages":[{"role":"king","content":"x"}]})", 400, "messages[0].role is \"king\""},
      {chat, R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{}}]})",
       400, "tools[0].function has no \"name\""},
      {chat, R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})", 400, "type image"},
      {chat, R"({"model":"gpt-9","messages":[{"role":"user","content":"x"}]})", 404, "this server has tiny"},
      {chat, R"({"model":7,"messages":[]})", 400, "\"model\" is a number, expected a string"},
      {complete, R"({"prompt":"a","temperature":NaN})", 400, "not valid JSON"},
      {complete, R"({"prompt":"a","temperature":1e999})", 400, "temperature"},
      {complete, R"({"prompt":"a","temperature":-1})", 400, "temperature is -1, allowed is [0, inf)"},
      {complete, R"({"prompt":"a","temperature":"hot"})", 400,
       "\"temperature\" is a string, expected a number"},
      {complete, R"({"prompt":"a","top_p":1.5})", 400, "top_p is 1.5, allowed is [0, 1]"},
      {complete, R"({"prompt":"a","top_k":-2})", 400, "top_k is -2"},
      {complete, R"({"prompt":"a","min_p":1.5})", 400, "min_p is 1.5"},
      {complete, R"({"prompt":"a","max_tokens":-5})", 400, "\"max_tokens\" is -5"},
      {complete, R"({"prompt":"a","max_tokens":1.5})", 400, "expected a whole number"},
      {complete, R"({"prompt":"a","n":0})", 400, "\"n\" is 0, allowed is 1 to 128"},
      {complete, R"({"prompt":"a","n":1000000})", 400, "allowed is 1 to 128"},
      {complete, R"({"prompt":"a","best_of":3})", 400, "best_of"},
      {complete, R"({"prompt":"a","suffix":"b"})", 400, "suffix"},
      {complete, R"({"prompt":"a","seed":"x"})", 400, "\"seed\" is a string"},
      {complete, R"({"prompt":"a","stop":[1]})", 400, "\"stop\" holds a number"},
      {complete, R"({"prompt":"a","logprobs":99})", 400, "allowed is 0 to 20"},
      {complete, R"({"prompt":[1,-1]})", 400, "holds token -1, expected an id from 0 to 262"},
      {complete, R"({"prompt":[1.5]})", 400, "holds token"},
      {complete, R"({"prompt":{}})", 400, "\"prompt\" is an object"},
      {complete, R"({"prompt":[]})", 400, "an empty list"},
      {complete, R"({})", 400, "\"prompt\" is missing"},
      {own, R"({"prompt":"a","samplers":["nonsense"]})", 400, "nonsense"},
      {own, R"({"prompt":"a","repeat_penalty":0})", 400, "repeat_penalty is 0"},
      {own, R"({"prompt":"a","grammar":"root ::= x"})", 400, "x"},
      {own, R"({"prompt":"a","json_schema":{"type":"nope"}})", 400, "nope"},
      {own, R"({"prompt":"a","json_schema":{},"grammar":"root ::= \"a\""})", 400, "cannot both be obeyed"},
      {own, R"({"prompt":"a","mirostat":1})", 400, "mirostat is 1"},
      {"/detokenize", R"({"tokens":[99999]})", 400, "expected ids from 0 to 262"},
      {"/tokenize", R"({})", 400, "\"content\" is missing"},
      {"/nowhere", R"({})", 404, "there is no /nowhere"},
      {"/health", R"({})", 405, "expected GET"},
  };
  for (const Case& c : cases) {
    const HttpReply reply = hostile_server().post(c.path, c.body);
    EXPECT_EQ(reply.status, c.status) << c.path << " " << c.body << "\n" << reply.body;
    const std::string message = str(json::parse(reply.body).at("error").at("message"));
    EXPECT_NE(message.find(c.message), std::string::npos) << c.body << "\n" << message;
  }
  EXPECT_EQ(hostile_server().post("/health", "{}").headers.at("allow"), "GET");
  expect_alive();
}

TEST(BadInput, EdgesOfTheSamplersAreNoErrors) {
  const auto text = [](const std::string& settings) {
    return str(hostile_server()
                   .post_json("/completion",
                              R"({"prompt":"ab","n_predict":6,"seed":5,"ignore_eos":true,)" + settings + "}")
                   .at("content"));
  };
  const std::string greedy = text(R"("temperature":0)");
  EXPECT_EQ(text(R"("top_k":1)"), greedy);
  EXPECT_EQ(text(R"("top_p":0)"), greedy);
  EXPECT_EQ(text(R"("min_p":1)"), greedy);
  EXPECT_EQ(text(R"("temperature":1e-9)"), greedy);
  EXPECT_EQ(text(R"("top_k":0)"), text(R"("top_k":1000000000)"));
  EXPECT_EQ(text(R"("top_k":-1)"), text(R"("top_k":0)"));
  EXPECT_FALSE(text(R"("temperature":1e9)").empty());
  EXPECT_FALSE(text(R"("samplers":[])").empty());
  EXPECT_FALSE(text(R"("samplers":["min_p","temperature"],"repeat_last_n":-1)").empty());
}

TEST(BadInput, WhatIsNoHttpIsRefusedAndTheConnectionEnds) {
  for (const auto& [bytes, status] : std::vector<std::pair<std::string, int>>{
           {"NONSENSE\r\n\r\n", 400},
           {"GET / HTTP/9.9\r\n\r\n", 400},
           {std::string("GET /\0 HTTP/1.1\r\n\r\n", 19), 400},
           {"GET / HTTP/1.1\r\nX: " + std::string(20000, 'a') + "\r\n\r\n", 431},
           {"POST /completion HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", 413},
           {"POST /completion HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400},
           {"POST /completion HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
           {"POST /completion HTTP/1.1\r\nExpect: miracles\r\nContent-Length: 2\r\n\r\n{}", 417}}) {
    HttpClient client(hostile_server().port());
    client.send(bytes);
    const HttpReply reply = client.read_reply();
    EXPECT_TRUE(reply.status == status || (status == 400 && reply.status == 505))
        << reply.status << " " << bytes.substr(0, 60);
    EXPECT_FALSE(reply.keep_alive);
    EXPECT_EQ(client.receive(), "") << "the connection ends";
  }
  expect_alive();
}

TEST(BadInput, SlowClientsAreEnded) {
  // A head that never ends, and a body that never comes: both are given up after their time.
  HttpClient head(hostile_server().port());
  head.send("GET /health HTTP/1.1\r\nX");
  EXPECT_EQ(head.read_reply().status, 408);
  HttpClient body(hostile_server().port());
  body.send("POST /completion HTTP/1.1\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_EQ(body.read_reply().status, 408);
  // Bytes that trickle in do not extend the time.
  HttpClient trickle(hostile_server().port());
  for (int i = 0; i < 100; ++i) {
    if (!trickle.send("G")) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(trickle.read_reply().status, 408);
  expect_alive();
}

TEST(BadInput, RequestsMayFollowEachOtherWithoutWaiting) {
  HttpClient client(hostile_server().port());
  std::string both = request_text("POST", "/tokenize", R"({"content":"ab"})") +
                     request_text("GET", "/health", "") +
                     request_text("POST", "/tokenize", R"({"content":"cd"})");
  client.send(both);
  EXPECT_EQ(client.read_reply().body, R"({"count":2,"max_model_len":512,"tokens":[97,98]})");
  EXPECT_EQ(client.read_reply().body, R"({"status":"ok"})");
  EXPECT_EQ(client.read_reply().body, R"({"count":2,"max_model_len":512,"tokens":[99,100]})");
  // And byte by byte.
  const std::string one = request_text("POST", "/tokenize", R"({"content":"ab"})");
  for (const char c : one) client.send(std::string(1, c));
  EXPECT_EQ(client.read_reply().body, R"({"count":2,"max_model_len":512,"tokens":[97,98]})");
}

TEST(BadInput, HeadOptionsAndHttp10) {
  HttpClient client(hostile_server().port());
  client.send(request_text("HEAD", "/health", ""));
  client.send(request_text("OPTIONS", "/health", ""));
  const std::string head = client.receive();
  EXPECT_EQ(head.substr(0, 15), "HTTP/1.1 200 OK");
  EXPECT_EQ(head.find("status"), std::string::npos) << "no body";
  HttpClient old(hostile_server().port());
  old.send("POST /completion HTTP/1.0\r\nContent-Length: 60\r\n\r\n" +
           std::string(R"({"prompt":"ab","n_predict":2,"stream":true,"ignore_eos":true})").substr(0, 60));
  const HttpReply reply = old.read_reply();
  EXPECT_EQ(reply.status, 400) << "cut JSON";
  HttpClient old2(hostile_server().port());
  const std::string body = R"({"prompt":"ab","n_predict":2,"stream":true,"ignore_eos":true})";
  old2.send("POST /completion HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
            body);
  const HttpReply stream = old2.read_reply();
  EXPECT_EQ(stream.status, 200);
  EXPECT_EQ(stream.headers.count("transfer-encoding"), 0u) << "HTTP/1.0 knows no chunks";
  EXPECT_EQ(events_of(stream.body).back().at("stop"), true);
}

}  // namespace
}  // namespace quipu::test
