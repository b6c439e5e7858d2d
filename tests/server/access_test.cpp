// API keys, web origins, Unix sockets.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "core/log.hpp"
#include "server_fixture.hpp"

namespace quipu::test {
namespace {

const std::string kKey1 = "0123456789abcdef0123456789abcdef", kKey2 = "fedcba9876543210fedcba9876543210";

TEST(Access, AKeyIsWantedEverywhereButForHealth) {
  ServerSettings settings;
  settings.server.keys.add(kKey1);
  settings.server.keys.add(kKey2);
  TestServer server(settings);
  server.served();
  EXPECT_EQ(server.get("/health").status, 200);
  const HttpReply none = server.post("/v1/completions", R"({"prompt":"a","max_tokens":1})");
  EXPECT_EQ(none.status, 401);
  EXPECT_EQ(none.headers.at("www-authenticate"), "Bearer");
  EXPECT_EQ(json::parse(none.body).at("error").at("code"), "invalid_api_key");
  EXPECT_EQ(server.get("/metrics").status, 401);
  EXPECT_EQ(server.get("/nowhere").status, 401);
  for (const std::string& key : {kKey1, kKey2}) {
    EXPECT_EQ(server.get("/v1/models", {"Authorization: Bearer " + key}).status, 200);
    EXPECT_EQ(server.get("/v1/models", {"X-Api-Key: " + key}).status, 200);
  }
  for (const std::string& wrong :
       {kKey1.substr(0, 31), kKey1 + "0", kKey1.substr(0, 31) + "x", std::string("x")})
    EXPECT_EQ(server.get("/v1/models", {"Authorization: Bearer " + wrong}).status, 401);
  EXPECT_EQ(server.get("/v1/models", {"Authorization: Basic " + kKey1}).status, 401);
  const std::string llama =
      server.post("/tokenize", R"({"content":"a"})", {"Authorization: Bearer nope"}).body;
  EXPECT_EQ(json::parse(llama).at("error").at("type"), "authentication_error");
  EXPECT_EQ(llama.find("nope"), std::string::npos);
  const std::vector<std::string> with_key{"Authorization: Bearer " + kKey1};
  for (const char* path : {"/props", "/metrics", "/slots", "/v1/models"})
    EXPECT_EQ(server.get(path, with_key).body.find(kKey1.substr(0, 16)), std::string::npos) << path;
}

TEST(Access, TheBodyOfAStrangerIsNotRead) {
  ServerSettings settings;
  settings.server.keys.add(kKey1);
  TestServer server(settings);
  HttpClient client(server.port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n");
  const HttpReply reply = client.read_reply();  // though no byte of the body was sent
  EXPECT_EQ(reply.status, 401);
  EXPECT_FALSE(reply.keep_alive);
}

TEST(Access, KeysComeFromAFile) {
  TemporaryFolder folder;
  std::ofstream(folder / "keys") << "# of the team\n\n " << kKey1 << " \r\n" << kKey2;
  server::ApiKeys keys;
  EXPECT_FALSE(keys.required());
  keys.add_file(folder / "keys");
  EXPECT_EQ(keys.match(kKey1), std::size_t{0});
  EXPECT_EQ(keys.match(kKey2), std::size_t{1});
  EXPECT_FALSE(keys.match("# of the team"));
  EXPECT_FALSE(keys.match(""));
  std::ofstream(folder / "empty") << "# nothing\n";
  EXPECT_THROW(keys.add_file(folder / "empty"), Error);
  EXPECT_THROW(keys.add_file(folder / "absent"), Error);
  EXPECT_THROW(keys.add("two words"), Error);
}

bool has_cors(const HttpReply& reply) {
  for (const auto& [name, value] : reply.headers) {
    if (name.rfind("access-control-", 0) == 0) return true;
  }
  return false;
}

TEST(Access, AForeignOriginGetsNothing) {
  TestServer server;
  server.served();
  const std::string body = R"({"prompt":"a","max_tokens":1})";
  for (const std::string origin : {"https://evil.example", "null", "http://localhost.evil.example"}) {
    const std::vector<std::string> headers{"Origin: " + origin};
    for (const HttpReply& reply :
         {server.get("/v1/models", headers), server.post("/v1/completions", body, headers),
          HttpClient(server.port()).request("OPTIONS", "/v1/completions", "", headers)}) {
      EXPECT_EQ(reply.status, 403) << origin;
      EXPECT_FALSE(has_cors(reply));
    }
  }
  const HttpReply plain = server.post("/v1/completions", body);
  EXPECT_EQ(plain.status, 200);
  EXPECT_FALSE(has_cors(plain));
}

TEST(Access, AnAllowedOriginGetsItsHeadersEverywhere) {
  ServerSettings settings;
  settings.server.origins.allow("https://chat.example");
  settings.server.origins.allow("http://localhost:*");
  TestServer server(settings);
  server.served();
  const std::vector<std::string> mine{"Origin: https://chat.example",
                                      "Access-Control-Request-Headers: Authorization"};
  const HttpReply preflight = HttpClient(server.port()).request("OPTIONS", "/v1/completions", "", mine);
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "https://chat.example");
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "Authorization");
  EXPECT_EQ(preflight.headers.at("vary"), "Origin");
  const std::string stream = R"({"prompt":"a","max_tokens":1,"stream":true})";
  for (const HttpReply& reply :
       {server.post("/v1/completions", stream, mine), server.post("/v1/completions", "{", mine),
        server.get("/nowhere", mine), server.get("/health", mine)})
    EXPECT_EQ(reply.headers.at("access-control-allow-origin"), "https://chat.example") << reply.status;
  EXPECT_EQ(server.get("/health", {"Origin: http://localhost:5173"}).status, 200);
  EXPECT_EQ(server.get("/health", {"Origin: http://localhost:evil"}).status, 403);
  EXPECT_EQ(server.get("/health", {"Origin: https://chat.example.evil"}).status, 403);
}

TEST(Access, TheOwnPageIsNoForeignerButAReboundNameIs) {
  TestServer server;
  const auto status = [&](const std::string& host) {
    HttpClient client(server.port());
    client.send("GET /v1/models HTTP/1.1\r\nHost: " + host + "\r\nOrigin: http://" + host + "\r\n\r\n");
    return client.read_reply().status;
  };
  EXPECT_EQ(status("localhost:8080"), 200);
  EXPECT_EQ(status("127.0.0.1:8080"), 200);
  EXPECT_EQ(status("[::1]:8080"), 200);
  EXPECT_EQ(status("evil.example:8080"), 403) << "a foreign name that resolves to this machine";
}

TEST(Access, AUnixSocketIsForItsOwnerOnlyAndIsRemoved) {
  TemporaryFolder folder;
  const std::string path = folder / "quipu.sock";
  {
    ServerSettings settings;
    settings.server.http.host = "unix:" + path;
    TestServer server(settings);
    server.served();
    EXPECT_EQ(HttpClient(path).request("GET", "/health").status, 200);
    struct stat info {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    EXPECT_THROW(TestServer{settings}, Error) << "somebody listens there";
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  std::ofstream(path) << "a file";
  ServerSettings settings;
  settings.server.http.host = "unix:" + path;
  EXPECT_THROW(TestServer{settings}, Error) << "a file is not replaced";
}

TEST(RequestLog, ShowsTextsOnlyWhenAskedTo) {
  const log::Level before = log::level();
  log::set_level(log::Level::info);
  for (const bool wanted : {false, true}) {
    ServerSettings settings;
    settings.server.log_bodies = wanted;
    settings.server.keys.add("the-key");
    testing::internal::CaptureStderr();
    {
      TestServer server(settings);
      const HttpReply reply = server.post("/completion", R"({"prompt":"my own affairs","n_predict":1})",
                                          {"Authorization: Bearer the-key"});
      EXPECT_EQ(reply.status, 200) << reply.body;
    }
    const std::string lines = testing::internal::GetCapturedStderr();
    EXPECT_NE(lines.find("path=/completion status=200"), std::string::npos) << lines;
    EXPECT_NE(lines.find("prompt_tokens="), std::string::npos) << lines;
    EXPECT_EQ(lines.find("my own affairs") != std::string::npos, wanted) << lines;
    EXPECT_EQ(lines.find("the-key"), std::string::npos) << lines;
  }
  log::set_level(before);
}

}  // namespace
}  // namespace quipu::test
