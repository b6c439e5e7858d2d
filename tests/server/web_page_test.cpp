// The page at "/": the committed bytes, and the headers that keep it to itself.
#include "server/web_page.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "server_fixture.hpp"
#include "support.hpp"

namespace quipu::test {
namespace {

std::string committed_page() {
  std::ifstream file(test::source_path("webui/dist/index.html"), std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(WebPage, IsTheCommittedFile) {
  const std::string page = committed_page();
  ASSERT_EQ(page.rfind("<!doctype html>", 0), 0U);
  TestServer server;
  for (const char* path : {"/", "/index.html"}) {
    const HttpReply reply = server.get(path);
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.headers.at("content-type"), "text/html; charset=utf-8");
    EXPECT_TRUE(reply.body == page) << path;  // not EXPECT_EQ: it would print them
  }
  // HEAD: the same head, no body; the connection goes on.
  HttpClient client(server.port());
  ASSERT_TRUE(client.send(request_text("HEAD", "/", "")));
  std::string head;
  while (head.find("\r\n\r\n") == std::string::npos) head += client.receive();
  EXPECT_EQ(head.substr(0, 15), "HTTP/1.1 200 OK");
  EXPECT_NE(head.find("Content-Length: " + std::to_string(page.size()) + "\r\n"), std::string::npos);
  EXPECT_EQ(head.substr(head.size() - 4), "\r\n\r\n");
}

TEST(WebPage, IsNotSentTwice) {
  TestServer server;
  const HttpReply first = server.get("/");
  const std::string tag = first.headers.at("etag");
  EXPECT_EQ(tag.size(), 66U);
  EXPECT_EQ(first.headers.at("cache-control"), "no-cache");
  for (const std::string& known : {tag, "W/" + tag, "\"other\", " + tag, std::string("*")}) {
    const HttpReply again = server.get("/", {"If-None-Match: " + known});
    EXPECT_EQ(again.status, 304) << known;
    EXPECT_EQ(again.headers.at("etag"), tag);
    EXPECT_EQ(again.body, "");
  }
  EXPECT_EQ(server.get("/", {"If-None-Match: \"other\""}).status, 200);
}

TEST(WebPage, RunsNothingButItsOwnScript) {
  TestServer server;
  const HttpReply reply = server.get("/");
  const std::string& policy = reply.headers.at("content-security-policy");
  for (const char* part : {"default-src 'none'; script-src 'sha256-", "; connect-src 'self';",
                           "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"})
    EXPECT_NE(policy.find(part), std::string::npos) << policy;
  EXPECT_EQ(policy.find("unsafe"), std::string::npos);
  EXPECT_EQ(policy.find("http"), std::string::npos);
  EXPECT_EQ(reply.headers.at("x-content-type-options"), "nosniff");
  // Nothing is loaded from elsewhere, not even when the policy is ignored.
  EXPECT_EQ(reply.body.find(" src=\"http"), std::string::npos);
  EXPECT_EQ(reply.body.find("@import"), std::string::npos);
}

TEST(WebPage, IsOpenWhereKeysAreWantedAndClosedToForeignPages) {
  ServerSettings settings;
  settings.server.keys.add("0123456789abcdef");
  TestServer server(settings);
  EXPECT_EQ(server.get("/").status, 200);
  EXPECT_EQ(server.get("/v1/models").status, 401);
  EXPECT_EQ(server.get("/", {"Origin: https://evil.example"}).status, 403);
  const HttpReply posted = server.post("/", "{}", {"Authorization: Bearer 0123456789abcdef"});
  EXPECT_EQ(posted.status, 405);
  EXPECT_EQ(posted.headers.at("allow"), "GET");
}

}  // namespace
}  // namespace quipu::test
