// All shared tokenizer vectors (ids by Hugging Face tokenizers), and the round trip through decode.
#include <gtest/gtest.h>

#include "shared_vectors.hpp"

namespace quipu {
namespace {

struct Family {
  const char* name;
  std::size_t count;
  bool lossless;
};

class SharedVectors : public testing::TestWithParam<Family> {};

TEST_P(SharedVectors, EncodeGivesTheIdsOfTheOriginalTokenizer) {
  QUIPU_REQUIRE_SHARED(test::vocabulary_path(GetParam().name));
  const auto tokenizer = test::load_vocabulary(GetParam().name);
  const std::vector<test::Vector> vectors = test::read_vectors(GetParam().name);
  ASSERT_EQ(vectors.size(), GetParam().count);
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    EXPECT_EQ(tokenizer->encode(vectors[i].text, {false, false}), vectors[i].ids)
        << "string " << i << ": " << testing::PrintToString(vectors[i].text);
  }
}

TEST_P(SharedVectors, DecodeGivesTheTextBack) {
  QUIPU_REQUIRE_SHARED(test::vocabulary_path(GetParam().name));
  if (!GetParam().lossless) return;
  const auto tokenizer = test::load_vocabulary(GetParam().name);
  for (const test::Vector& vector : test::read_vectors(GetParam().name)) {
    EXPECT_EQ(tokenizer->decode(vector.ids), vector.text);
    // Piece by piece, the stream decoder gives the same text: all vectors are valid UTF-8.
    text::StreamDecoder stream(*tokenizer);
    std::string streamed;
    for (const text::Token token : vector.ids) streamed += stream.push(token);
    EXPECT_EQ(streamed + stream.finish(), vector.text);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SharedVectors,
                         testing::Values(Family{"bert-bge", 46, false}, Family{"command-r", 46, true},
                                         Family{"deepseek-coder", 46, true}, Family{"deepseek-llm", 46, true},
                                         Family{"falcon", 46, true}, Family{"gemma-4", 46, true},
                                         Family{"gpt-2", 46, true}, Family{"llama-bpe", 46, true},
                                         Family{"llama-spm", 46, true}, Family{"mpt", 46, true},
                                         Family{"phi-3", 46, true}, Family{"qwen2", 46, true},
                                         Family{"qwen35", 50, true}, Family{"refact", 46, true},
                                         Family{"starcoder", 46, true}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace quipu
