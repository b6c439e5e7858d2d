// The public C++ and C interfaces on a tiny model.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "quipu/quipu.h"
#include "quipu/quipu.hpp"
#include "tiny_model.hpp"

extern "C" int quipu_test_abi_version_seen_by_c(void);
extern "C" size_t quipu_test_options_size_seen_by_c(void);

namespace quipu::test {
namespace {

GenerateOptions greedy(std::int64_t tokens) {
  GenerateOptions options;
  options.temperature = 0;
  options.max_tokens = tokens;
  return options;
}

class Api : public testing::Test {
 protected:
  void SetUp() override {
    TinyModelOptions options;
    options.extra.emplace_back(
        "tokenizer.chat_template",
        tiny::text(
            "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
            "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
            "}}{% "
            "endif %}"));
    write_tiny_model(path(), options);
  }
  std::string path() const { return (folder / "tiny.gguf").string(); }
  TemporaryFolder folder;
};

TEST_F(Api, TokenizesAsTheVocabularySays) {
  const Model model(path());
  // Ids by tiny_model.hpp: bytes are themselves, 256 "he", 257 "ll", 258 " t", 259 " the".
  EXPECT_EQ(model.tokenize("hello the"), (std::vector<TokenId>{256, 257, 'o', 259}));
  EXPECT_EQ(model.detokenize(std::vector<TokenId>{256, 257, 'o', 259}), "hello the");
  EXPECT_EQ(model.tokenize("<|im_end|>"), std::vector<TokenId>{262});
  EXPECT_EQ(model.tokenize("<|im_end|>", true, false).size(), 10u);
  EXPECT_EQ(model.vocabulary_size(), 263u);
  EXPECT_EQ(model.trained_context(), 512);
}

TEST_F(Api, RefusesTokensOutsideTheVocabulary) {
  const Model model(path());
  EXPECT_THROW(model.detokenize(std::vector<TokenId>{263}), Error);
  EXPECT_THROW(model.detokenize(std::vector<TokenId>{-1}), Error);
}

TEST_F(Api, ErrorsCarryACodeAndNameTheFile) {
  try {
    const Model model("/nonexistent/model.gguf");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_NE(error.message().find("/nonexistent/model.gguf"), std::string::npos);
  }
}

TEST_F(Api, StreamsTheTextItReturns) {
  Session session{Model(path())};
  GenerateOptions options = greedy(12);
  std::string streamed;
  options.on_text = [&](std::string_view text) {
    streamed += text;
    return true;
  };
  const Generation generation = session.generate("hello", options);
  EXPECT_EQ(streamed, generation.text);
  EXPECT_EQ(generation.prompt_tokens, 3);
}

TEST_F(Api, RendersTheConversationWithTheTemplate) {
  const std::vector<ChatMessage> messages{{"user", "hi"}};
  EXPECT_EQ(Model(path()).chat_prompt(messages), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(Api, ReusesAPrefixWithoutChangingTheTokens) {
  const Model model(path());
  Session one(model), two(model);
  const Generation first = one.generate("hello the hello", greedy(10));
  EXPECT_EQ(first.cached_tokens, 0);
  const Generation again = one.generate("hello the hello the other", greedy(10));
  EXPECT_EQ(again.cached_tokens, first.prompt_tokens);
  EXPECT_EQ(again.tokens, two.generate("hello the hello the other", greedy(10)).tokens);
}

TEST_F(Api, SavesAndRestoresWithoutChangingTheTokens) {
  const Model model(path());
  Session one(model), two(model);
  const Generation first = one.generate("hello the hello", greedy(5));
  one.save(folder / "state");
  two.restore(folder / "state");
  const Generation restored = two.generate("hello the hello", greedy(5));
  EXPECT_EQ(restored.tokens, first.tokens);
  EXPECT_EQ(restored.cached_tokens, restored.prompt_tokens - 1);
  one.reset();
  EXPECT_EQ(one.generate("hello the hello", greedy(5)).cached_tokens, 0);
}

TEST_F(Api, ACallbackEndsOrThrowsAndTheSessionLivesOn) {
  Session session{Model(path())};
  GenerateOptions options = greedy(50);
  options.on_text = [](std::string_view) { return false; };
  const Generation stopped = session.generate("hello", options);
  EXPECT_LT(stopped.tokens.size(), 50u);
  options.on_text = [](std::string_view) -> bool { throw std::runtime_error("enough"); };
  EXPECT_THROW(session.generate("hello", options), std::runtime_error);
  EXPECT_FALSE(session.generate("hello", greedy(3)).tokens.empty());
}

TEST_F(Api, APromptBeyondTheContextIsAnError) {
  SessionOptions small;
  small.context = 8;
  Session session(Model(path()), small);
  try {
    session.generate("0123456789", greedy(1));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::context_overflow);
  }
}

class CApi : public Api {
 protected:
  void SetUp() override {
    Api::SetUp();
    ASSERT_EQ(quipu_model_open(path().c_str(), &model), QUIPU_OK) << quipu_last_error();
    ASSERT_EQ(quipu_session_open(model, nullptr, &session), QUIPU_OK) << quipu_last_error();
  }
  void TearDown() override {
    quipu_session_free(session);
    quipu_model_free(model);
  }
  quipu_model* model = nullptr;
  quipu_session* session = nullptr;
};

TEST_F(CApi, HeaderAndLibraryAgree) {
  EXPECT_EQ(quipu_abi_version(), quipu_test_abi_version_seen_by_c());
  EXPECT_EQ(sizeof(quipu_generate_options), quipu_test_options_size_seen_by_c());
  EXPECT_STREQ(quipu_version(), "0.1.0");
}

TEST_F(CApi, TokenizesIntoACallersBuffer) {
  int32_t ids[2] = {-1, -1};
  size_t count = 0;
  ASSERT_EQ(quipu_tokenize(model, "hello", 5, 0, ids, 2, &count), QUIPU_OK);
  EXPECT_EQ(count, 3u);  // one more than fits
  EXPECT_EQ(ids[0], 256);
  EXPECT_EQ(ids[1], 257);
  char text[8] = {};
  size_t size = 0;
  ASSERT_EQ(quipu_detokenize(model, ids, 2, text, sizeof text, &size), QUIPU_OK);
  EXPECT_EQ(std::string(text, size), "hell");
}

TEST_F(CApi, GeneratesWhatTheCppInterfaceDoes) {
  quipu_generate_options options;
  quipu_generate_options_init(&options);
  options.temperature = 0;
  options.max_tokens = 10;
  std::string streamed;
  options.user = &streamed;
  options.on_text = [](const char* text, size_t size, void* user) {
    static_cast<std::string*>(user)->append(text, size);
    return 0;
  };
  quipu_result* result = nullptr;
  ASSERT_EQ(quipu_generate(session, "hello", 5, &options, &result), QUIPU_OK) << quipu_last_error();
  Session other{Model(path())};
  const Generation expected = other.generate("hello", greedy(10));
  size_t size = 0, count = 0;
  const char* text = quipu_result_text(result, &size);
  EXPECT_EQ(std::string(text, size), expected.text);
  EXPECT_EQ(streamed, expected.text);
  const int32_t* tokens = quipu_result_tokens(result, &count);
  EXPECT_EQ(std::vector<TokenId>(tokens, tokens + count), expected.tokens);
  EXPECT_EQ(quipu_result_prompt_tokens(result), 3);
  EXPECT_EQ(expected.stop, quipu_result_stop(result));
  quipu_result_free(result);
}

TEST_F(CApi, ChatsThroughTheTemplate) {
  quipu_generate_options options;
  quipu_generate_options_init(&options);
  options.max_tokens = 2;
  const quipu_message message{"user", "hi"};
  quipu_result* result = nullptr;
  ASSERT_EQ(quipu_chat(session, &message, 1, &options, &result), QUIPU_OK) << quipu_last_error();
  EXPECT_EQ(quipu_result_prompt_tokens(result), 21);  // counted by hand, see RendersTheConversation…
  quipu_result_free(result);
}

TEST_F(CApi, FailuresAreStatusesWithASentence) {
  quipu_model* none = nullptr;
  EXPECT_EQ(quipu_model_open("/nonexistent.gguf", &none), QUIPU_NOT_FOUND);
  EXPECT_EQ(none, nullptr);
  EXPECT_NE(std::strstr(quipu_last_error(), "/nonexistent.gguf"), nullptr);
  EXPECT_EQ(quipu_model_open(nullptr, &none), QUIPU_INVALID_ARGUMENT);
  quipu_generate_options options;
  quipu_generate_options_init(&options);
  options.top_p = 7;
  quipu_result* result = nullptr;
  EXPECT_EQ(quipu_generate(session, "x", 1, &options, &result), QUIPU_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(quipu_last_error(), "top_p"), nullptr) << quipu_last_error();
  EXPECT_EQ(quipu_session_restore(session, "/nonexistent.state"), QUIPU_NOT_FOUND);
}

TEST_F(CApi, AnOlderCallersShorterStructKeepsTheDefaults) {
  quipu_generate_options options;
  quipu_generate_options_init(&options);
  options.max_tokens = 1;
  options.top_p = 7;  // beyond what the older caller knows of: never read
  options.struct_size = offsetof(quipu_generate_options, top_p);
  quipu_result* result = nullptr;
  EXPECT_EQ(quipu_generate(session, "x", 1, &options, &result), QUIPU_OK) << quipu_last_error();
  quipu_result_free(result);
}

TEST_F(Api, TheExampleAnswers) {
  const std::string command = std::string(QUIPU_SIMPLE) + " " + path() + " hello 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  char buffer[256];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, n);
  EXPECT_EQ(::pclose(pipe), 0) << output;
  EXPECT_FALSE(output.empty());
}

}  // namespace
}  // namespace quipu::test
