// Vectors and scores over HTTP: every dialect, every form of input, alone and in a crowd.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "convert_folder.hpp"
#include "server_fixture.hpp"

namespace quipu::test {
namespace {

ServerSettings settings_of(const ModelFolder& folder) {
  ServerSettings settings;
  settings.context = 0;
  settings.model = folder.path();
  return settings;
}

std::vector<double> numbers(const json::value& value) { return json::value_to<std::vector<double>>(value); }

double length(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

std::vector<double> from_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t word = 0, bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    word = word << 6 | static_cast<std::uint32_t>(digits.find(c));
    if ((bits += 6) >= 8) bytes += static_cast<char>(word >> (bits -= 8) & 255);
  }
  std::vector<double> values;
  for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    float value = 0;
    std::memcpy(&value, bytes.data() + i, 4);
    values.push_back(value);
  }
  return values;
}

class Embeddings : public testing::Test {
 protected:
  std::vector<double> vector(const json::object& answer, std::size_t i) {
    const json::object& item = answer.at("data").as_array().at(i).as_object();
    EXPECT_EQ(item.at("index").to_number<std::size_t>(), i);
    EXPECT_EQ(item.at("object"), "embedding");
    return numbers(item.at("embedding"));
  }
  ModelFolder folder{"bert"};
  TestServer server{settings_of(folder)};
};

TEST_F(Embeddings, OfOpenAiTakeEveryFormOfInput) {
  const json::object texts =
      server.post_json("/v1/embeddings", R"({"model":"tiny","input":["the cat","","the"],"user":"x"})");
  EXPECT_EQ(texts.at("object"), "list");
  EXPECT_EQ(texts.at("model"), "tiny");
  ASSERT_EQ(texts.at("data").as_array().size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(length(vector(texts, i)), 1, 1e-5);
  const json::object one = server.post_json("/v1/embeddings", R"({"input":"the cat"})");
  EXPECT_EQ(vector(one, 0), vector(texts, 0));
  const json::object tokenized = server.post_json("/tokenize", R"({"content":"the cat","add_special":true})");
  const std::string ids = json::serialize(tokenized.at("tokens"));
  EXPECT_EQ(vector(server.post_json("/v1/embeddings", R"({"input":)" + ids + "}"), 0), vector(texts, 0));
  EXPECT_EQ(vector(server.post_json("/v1/embeddings", R"({"input":[[2,3],)" + ids + "]}"), 1),
            vector(texts, 0));
  const json::object& usage = one.at("usage").as_object();
  EXPECT_EQ(usage.at("prompt_tokens"), tokenized.at("tokens").as_array().size());
  EXPECT_EQ(usage.at("total_tokens"), usage.at("prompt_tokens"));
}

TEST_F(Embeddings, InBase64AreTheSameFloats) {
  const auto plain = vector(server.post_json("/v1/embeddings", R"({"input":"the cat"})"), 0);
  const json::object coded =
      server.post_json("/v1/embeddings", R"({"input":"the cat","encoding_format":"base64"})");
  const auto decoded = from_base64(str(coded.at("data").as_array()[0].as_object().at("embedding")));
  ASSERT_EQ(decoded.size(), plain.size());
  for (std::size_t i = 0; i < plain.size(); ++i)
    EXPECT_EQ(static_cast<float>(decoded[i]), static_cast<float>(plain[i])) << i;
}

TEST_F(Embeddings, AreShortenedToTheDimensionsAskedFor) {
  const auto whole = vector(server.post_json("/v1/embeddings", R"({"input":"the cat"})"), 0);
  auto expected = std::vector<double>(whole.begin(), whole.begin() + 8);
  const double norm = length(expected);
  const auto shorter = vector(server.post_json("/v1/embeddings", R"({"input":"the cat","dimensions":8})"), 0);
  ASSERT_EQ(shorter.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(shorter[i], expected[i] / norm, 1e-6);
}

TEST_F(Embeddings, OfLlamaCppHaveARowForEachTokenWithoutPooling) {
  const HttpReply reply = server.post("/embedding", R"({"content":["the cat","the"],"pooling":"none"})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json::array list = json::parse(reply.body).as_array();
  ASSERT_EQ(list.size(), 2U);
  const auto count = [&](const std::string& text) {
    return server.post_json("/tokenize", R"({"content":")" + text + R"(","add_special":true})")
        .at("tokens")
        .as_array()
        .size();
  };
  EXPECT_EQ(list[0].as_object().at("embedding").as_array().size(), count("the cat"));
  EXPECT_EQ(list[1].as_object().at("embedding").as_array().size(), count("the"));
  for (const char* pooling : {"mean", "cls", "last"}) {
    const HttpReply pooled =
        server.post("/embeddings",
                    R"({"input":"the cat","embd_normalize":-1,"pooling":")" + std::string(pooling) + "\"}");
    const json::array rows = json::parse(pooled.body).as_array()[0].as_object().at("embedding").as_array();
    ASSERT_EQ(rows.size(), 1U) << pooled.body;
    // By hand from the rows of the tokens, which are neither pooled nor scaled.
    const json::array& tokens = list[0].as_object().at("embedding").as_array();
    const auto row = numbers(rows[0]);
    for (std::size_t i = 0; i < row.size(); ++i) {
      double sum = 0;
      for (const json::value& token : tokens) sum += numbers(token)[i];
      const double expected = std::string(pooling) == "mean"  ? sum / static_cast<double>(tokens.size())
                              : std::string(pooling) == "cls" ? numbers(tokens.front())[i]
                                                              : numbers(tokens.back())[i];
      EXPECT_NEAR(row[i], expected, 1e-5) << pooling << " " << i;
    }
  }
}

TEST_F(Embeddings, OfOllamaTruncateUnlessToldNotTo) {
  const json::object answer = server.post_json("/api/embed", R"({"model":"tiny","input":["the cat","the"]})");
  ASSERT_EQ(answer.at("embeddings").as_array().size(), 2U);
  EXPECT_EQ(numbers(answer.at("embeddings").as_array()[0]),
            vector(server.post_json("/v1/embeddings", R"({"input":"the cat"})"), 0));
  EXPECT_GT(answer.at("prompt_eval_count").to_number<int>(), 4);
  std::string text;
  for (int i = 0; i < 70; ++i) text += "the ";
  EXPECT_EQ(server.post("/api/embed", R"({"input":")" + text + "\"}").status, 200);
  EXPECT_EQ(server.post("/api/embed", R"({"truncate":false,"input":")" + text + "\"}").status, 400);
  EXPECT_EQ(numbers(server.post_json("/api/embeddings", R"({"prompt":"the cat"})").at("embedding")).size(),
            32U);
}

TEST_F(Embeddings, RefusalsAre400sThatSayWhy) {
  std::string text;
  for (int i = 0; i < 70; ++i) text += "the ";
  const HttpReply too_long = server.post("/v1/embeddings", R"({"input":["the",")" + text + "\"]}");
  EXPECT_EQ(too_long.status, 400);
  const json::object error = json::parse(too_long.body).as_object().at("error").as_object();
  EXPECT_EQ(error.at("code"), "context_length_exceeded");
  EXPECT_NE(str(error.at("message")).find("72 tokens, the context holds 64"), std::string::npos);
  for (const auto& [body, part] : std::vector<std::pair<std::string, std::string>>{
           {R"({"input":[]})", "empty list"},
           {R"({"input":{"a":1}})", "an object"},
           {R"({})", "missing"},
           {R"({"input":[1,99999]})", "token 99999"},
           {R"({"input":"x","encoding_format":"hex"})", "encoding_format"},
           {R"({"input":"x","dimensions":33})", "1 to 32"},
           {R"({"input":"x","dimensions":0})", "1 to 32"},
           {R"({"input":"x","pooling":"max"})", "pooling"},
           {R"({"input":"x","pooling":"none"})", "one vector a text"}}) {
    const HttpReply reply = server.post("/v1/embeddings", body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_NE(reply.body.find(part), std::string::npos) << body << " " << reply.body;
  }
  // A model that gives vectors gives no text.
  const HttpReply chat = server.post("/v1/completions", R"({"prompt":"the","max_tokens":1})");
  EXPECT_EQ(chat.status, 400);
  EXPECT_NE(chat.body.find("no text"), std::string::npos) << chat.body;
  const HttpReply rank = server.post("/v1/rerank", R"({"query":"a","documents":["b"]})");
  EXPECT_EQ(rank.status, 400);
  EXPECT_NE(rank.body.find("reranker"), std::string::npos) << rank.body;
  EXPECT_EQ(server.get("/health").status, 200);
}

TEST_F(Embeddings, OfParallelRequestsAreTheBytesOfThoseAlone) {
  std::vector<std::string> bodies, expected;
  for (int i = 0; i < 64; ++i) {
    std::string text;
    for (int k = 0; k < i % 60; ++k) text += k % 3 == i % 3 ? "the " : "cat ";
    bodies.push_back(R"({"input":")" + text + "\"}");
  }
  for (const std::string& body : bodies) expected.push_back(server.post("/v1/embeddings", body).body);
  std::vector<std::string> found(bodies.size());
  std::vector<std::thread> clients;
  for (std::size_t i = 0; i < bodies.size(); ++i)
    clients.emplace_back([&, i] { found[i] = server.post("/v1/embeddings", bodies[i]).body; });
  for (std::thread& client : clients) client.join();
  for (std::size_t i = 0; i < bodies.size(); ++i) EXPECT_EQ(found[i], expected[i]) << i;
}

TEST(EmbeddingsOfADecoder, ComeFromTheModelThatAnswersToo) {
  TestServer server;
  const json::object answer = server.post_json("/v1/embeddings", R"({"input":["the hello","he"]})");
  ASSERT_EQ(answer.at("data").as_array().size(), 2U);
  for (const json::value& item : answer.at("data").as_array())
    EXPECT_NEAR(length(numbers(item.as_object().at("embedding"))), 1, 1e-5);
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt":"the","max_tokens":2})").status, 200);
  EXPECT_EQ(server.post("/v1/embeddings", R"({"input":""})").status, 400);
}

TEST(Rerank, GivesScoresInFallingOrder) {
  const ModelFolder folder("roberta_rank");
  TestServer server(settings_of(folder));
  const json::object answer = server.post_json(
      "/v1/rerank", R"({"query":"he","documents":["a","he he",{"text":"hello"}],"return_documents":true})");
  const json::array& results = answer.at("results").as_array();
  ASSERT_EQ(results.size(), 3U);
  for (std::size_t i = 1; i < 3; ++i)
    EXPECT_GE(results[i - 1].as_object().at("relevance_score").to_number<double>(),
              results[i].as_object().at("relevance_score").to_number<double>());
  EXPECT_TRUE(results[0].as_object().at("document").as_object().contains("text"));
  const json::object top =
      server.post_json("/rerank", R"({"query":"he","documents":["a","he he","hello"],"top_n":1})");
  ASSERT_EQ(top.at("results").as_array().size(), 1U);
  EXPECT_EQ(top.at("results").as_array()[0].as_object().at("index"), results[0].as_object().at("index"));
  // As Text Embeddings Inference has it.
  const HttpReply tei = server.post("/rerank", R"({"query":"he","texts":["a","he he","hello"]})");
  const json::array bare = json::parse(tei.body).as_array();
  ASSERT_EQ(bare.size(), 3U);
  EXPECT_EQ(bare[0].as_object().at("score"), results[0].as_object().at("relevance_score"));
  // Vectors of a reranker only when a pooling is named.
  EXPECT_EQ(server.post("/v1/embeddings", R"({"input":"he"})").status, 400);
  EXPECT_EQ(server.post("/v1/embeddings", R"({"input":"he","pooling":"cls"})").status, 200);
  for (const char* body :
       {R"({"documents":["a"]})", R"({"query":"a"})", R"({"query":"a","documents":[]})",
        R"({"query":"a","documents":[1]})", R"({"query":"a","documents":["b"],"top_n":0})"})
    EXPECT_EQ(server.post("/rerank", body).status, 400) << body;
}

}  // namespace
}  // namespace quipu::test
