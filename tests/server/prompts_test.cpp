// What a prompt becomes: one BOS whatever the way in, and fill-in-the-middle.
#include <gtest/gtest.h>

#include "server/fill_in.hpp"
#include "server_fixture.hpp"

namespace quipu::test {
namespace {

// The tests' SentencePiece vocabulary: 1 is <s>, 2 is </s>, bytes from 3 on, then "▁t", "▁" and ASCII from
// '!'.
constexpr std::int64_t kBos = 1, kAscii = 3 + 256 + 2;
constexpr std::int64_t kPre = kAscii + '~' - '!' - 2, kSuf = kPre + 1,
                       kMid = kPre + 2;  // as the file names them
std::int64_t ascii(char c) { return kAscii + c - '!'; }

ServerSettings with_bos() {
  ServerSettings settings;
  settings.spm = true;
  settings.chat_template =
      "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}";
  settings.extra = {{"tokenizer.ggml.fim_pre_token_id", tiny::uint(kPre)},
                    {"tokenizer.ggml.fim_suf_token_id", tiny::uint(kSuf)},
                    {"tokenizer.ggml.fim_mid_token_id", tiny::uint(kMid)}};
  return settings;
}
TestServer& prompts_server() {
  static TestServer server(with_bos());
  return server;
}

/// The prompt's tokens as the server's own echo of their probabilities tells them.
json::array echoed(const std::string& prompt) {
  const json::object answer = prompts_server().post_json(
      "/v1/completions", R"({"prompt":)" + prompt + R"(,"echo":true,"logprobs":0,"max_tokens":0})");
  EXPECT_TRUE(answer.contains("choices")) << json::serialize(answer);
  return answer.at("choices").at(0).at("logprobs").at("tokens").as_array();
}
std::size_t count(const json::array& tokens, std::string_view wanted) {
  std::size_t found = 0;
  for (const json::value& token : tokens) found += str(token) == wanted ? 1 : 0;
  return found;
}

TEST(Bos, IsThereOnceInEveryKindOfPrompt) {
  const std::vector<std::string> prompts{R"("hello")",
                                         R"("<s>hello")",
                                         R"(["hello"])",
                                         R"(["<s>hello"])",
                                         R"([["hello",)" + std::to_string(ascii('x')) + "]]",
                                         R"([["<s>hello", 262, "there"]])",
                                         R"([1, 262, 263])",
                                         R"([["", 1, 262]])",
                                         R"([[1, "hello"]])"};
  for (const std::string& prompt : prompts) {
    const json::array tokens = echoed(prompt);
    EXPECT_EQ(tokens.at(0), "<s>") << prompt;
    EXPECT_EQ(count(tokens, "<s>"), 1u) << prompt;
  }
  EXPECT_EQ(count(echoed("[262, 263]"), "<s>"), 0u) << "ids are taken as they are";
}

TEST(Bos, ATemplatesOwnIsTheOnlyOne) {
  // [user]hello[assistant] is 5 + 1 + 5 + 11 characters and a space piece; with the BOS one more.
  const std::string messages = R"("messages":[{"role":"user","content":"hello"}])";
  const json::object chat =
      prompts_server().post_json("/v1/chat/completions", "{" + messages + R"(,"max_tokens":1})");
  const json::object raw = prompts_server().post_json(
      "/v1/completions", R"({"prompt":"<s>[user]hello[assistant]","max_tokens":1})");
  EXPECT_EQ(chat.at("usage").at("prompt_tokens"), raw.at("usage").at("prompt_tokens"));
  const json::object applied = prompts_server().post_json("/apply-template", "{" + messages + "}");
  EXPECT_EQ(applied.at("prompt"), "<s>[user]hello[assistant]");
  EXPECT_EQ(count(echoed(json::serialize(applied.at("prompt"))), "<s>"), 1u);
  // A message cannot spell one.
  const json::object spelt = prompts_server().post_json(
      "/v1/chat/completions", R"({"messages":[{"role":"user","content":"<s>"}],"max_tokens":1})");
  const json::object plain = prompts_server().post_json(
      "/v1/chat/completions", R"({"messages":[{"role":"user","content":"abc"}],"max_tokens":1})");
  EXPECT_EQ(spelt.at("usage").at("prompt_tokens"), plain.at("usage").at("prompt_tokens"));
}

TEST(FillIn, ThePromptIsBosPrefixSuffixMiddle) {
  const auto served = prompts_server().served();
  const auto tokens = server::fill_in_tokens(served->model());
  ASSERT_TRUE(tokens);
  const server::Prompt prompt =
      server::fill_in_prompt(*tokens, {"ab", "<s>", "z", {}}, served->model().tokenizer());
  const auto is = [](std::int64_t id) { return static_cast<text::Token>(id); };
  // The space piece is the vocabulary's own prefix of a text.
  const text::Token space = is(3 + 256 + 1);
  EXPECT_EQ(prompt.tokens,
            (std::vector<text::Token>{is(kBos), is(kPre), space, is(ascii('a')), is(ascii('b')), is(kSuf),
                                      space, is(ascii('<')), is(ascii('s')), is(ascii('>')), is(kMid), space,
                                      is(ascii('z'))}));
}

TEST(FillIn, AnswersAsACompletionAndUnderOtherNames) {
  const json::object answer = prompts_server().post_json(
      "/infill", R"({"input_prefix":"ab","input_suffix":"cd","input_extra":[{"filename":"x.py","text":"y"}],)"
                 R"("n_predict":3,"ignore_eos":true,"temperature":0,"return_tokens":true})");
  EXPECT_EQ(answer.at("tokens_predicted"), 3) << json::serialize(answer);
  EXPECT_EQ(answer.at("stop_type"), "limit");
  const std::string more = R"("temperature":0,"ignore_eos":true)";
  const json::object own = prompts_server().post_json(
      "/infill", R"({"input_prefix":"ab","input_suffix":"cd","n_predict":5,)" + more + "}");
  const json::object openai = prompts_server().post_json(
      "/v1/completions", R"({"prompt":"ab","suffix":"cd","max_tokens":5,)" + more + "}");
  EXPECT_EQ(openai.at("choices").at(0).at("text"), own.at("content"));
  EXPECT_EQ(openai.at("usage").at("prompt_tokens"), own.at("tokens_evaluated"));
  const json::object ollama = prompts_server().post_json(
      "/api/generate",
      R"({"prompt":"ab","suffix":"cd","stream":false,"options":{"num_predict":5,)" + more + "}}");
  EXPECT_EQ(ollama.at("response"), own.at("content"));
  const HttpReply streamed = prompts_server().post(
      "/infill", R"({"input_prefix":"ab","input_suffix":"cd","n_predict":5,"stream":true,)" + more + "}");
  std::string text;
  for (const json::object& event : events_of(streamed.body)) text += str(event.at("content"));
  EXPECT_EQ(text, str(own.at("content")));
}

TEST(FillIn, AModelWithoutTheTokensSaysSo) {
  TestServer server;
  const HttpReply own = server.post("/infill", R"({"input_prefix":"a","input_suffix":"b"})");
  EXPECT_EQ(own.status, 501);
  EXPECT_NE(own.body.find("no fill-in-the-middle tokens"), std::string::npos);
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt":"a","suffix":"b"})").status, 400);
  EXPECT_EQ(server.post("/api/generate", R"({"prompt":"a","suffix":"b"})").status, 400);
  EXPECT_EQ(prompts_server().post("/infill", "{}").status, 400);
  EXPECT_EQ(prompts_server().post("/infill", R"({"input_prefix":7,"input_suffix":"b"})").status, 400);
  EXPECT_EQ(prompts_server()
                .post("/infill", R"({"input_prefix":"a","input_suffix":"b","input_extra":[{}]})")
                .status,
            400);
  const std::string longer(600, 'x');
  const HttpReply overflow =
      prompts_server().post("/infill", R"({"input_prefix":")" + longer + R"(","input_suffix":"b"})");
  EXPECT_EQ(overflow.status, 400);
  EXPECT_NE(overflow.body.find("exceed_context_size_error"), std::string::npos);
}

}  // namespace
}  // namespace quipu::test
