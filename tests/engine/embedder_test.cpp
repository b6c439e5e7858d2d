// Vectors are functions of their own text, whatever is asked for with it; what is refused, and how pairs are
// read.
#include <gtest/gtest.h>

#include "convert/convert.hpp"
#include "convert_folder.hpp"
#include "engine/embedder.hpp"
#include "engine_fixture.hpp"
#include "models/golden.hpp"

namespace quipu::test {
namespace {

using engine::Embedder;
using engine::Passage;
using models::Pooling;

Embedder embedder(const std::shared_ptr<const models::Model>& model, std::optional<Pooling> pooling,
                  int threads = 1, std::int64_t batch = 512, std::int64_t context = 0) {
  engine::EmbedderOptions options;
  options.pooling = pooling;
  options.batch = batch;
  options.context = context;
  options.backends.push_back(
      backends::make_cpu_backend({std::make_shared<ThreadPool>(threads), {UINT64_MAX}}));
  return {model, std::move(options)};
}

std::shared_ptr<const models::Model> golden_model(const std::string& name) {
  const ModelFolder folder(name);
  const auto source = convert::Model::open(folder.path());
  TemporaryFolder place;
  gguf::write(place / "model.gguf", source.metadata(), source.as_file(1).tensors());
  return models::Model::load(place / "model.gguf");  // stays mapped
}

/// Texts of 1 to 60 tokens.
std::vector<Passage> passages(std::size_t count) {
  std::vector<Passage> texts(count);
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t k = 0; k < 1 + i * 37 % 60; ++k)
      texts[i].tokens.push_back(static_cast<std::int32_t>(5 + (i * 31 + k * k * 7) % 110));
  return texts;
}

TEST(Embedder, AVectorIsTheSameBytesAloneAndAmong64WithAnyNumberOfThreads) {
  const std::vector<Passage> texts = passages(64);
  const auto bert = golden_model("bert");
  for (const auto& [model, pooling] : {std::pair{bert, Pooling::mean}, std::pair{bert, Pooling::none},
                                       std::pair{golden_model("modern_bert"), Pooling::cls},
                                       std::pair{shared_tiny_model(), Pooling::last}}) {
    Embedder one = embedder(model, pooling), two = embedder(model, pooling, 2, 300);
    EXPECT_EQ(one.width(), model->hyperparameters().embedding);
    const auto together = two.embed(texts);
    ASSERT_EQ(together.size(), texts.size());
    for (const std::size_t i : {0U, 1U, 17U, 40U, 63U}) {
      const auto alone = one.embed(std::span(texts).subspan(i, 1));
      EXPECT_EQ(alone.front(), together[i]) << to_string(pooling) << ", text " << i;
      EXPECT_EQ(alone.front().size(), static_cast<std::size_t>(one.width()) *
                                          (pooling == Pooling::none ? texts[i].tokens.size() : 1));
    }
  }
}

/// The state of the last token, scaled to length 1: what sentence-transformers makes of Qwen3 Embedding.
TEST(Embedder, Qwen3EmbeddingGivesTheVectorOfTransformers) {
  const auto model = golden_model("qwen3_embedding");
  const Golden golden(convert_golden("qwen3_embedding") / "logits.gguf");
  const auto expected = golden.floats("embedding");
  const std::vector<Passage> text{{golden.ints("tokens")}};
  engine::EmbedderOptions exact;
  exact.backends.push_back(backends::make_reference_backend());
  Embedder reference(model, std::move(exact)), cpu = embedder(model, std::nullopt);
  EXPECT_EQ(cpu.pooling(), Pooling::last);
  std::vector<float> vector = reference.embed(text).front();
  engine::normalize(vector);
  EXPECT_LE(relative_error(vector, expected), 1e-4);
  vector = cpu.embed(text).front();
  engine::normalize(vector);
  EXPECT_GE(cosine(vector, expected), 0.9999);
}

TEST(Embedder, RefusesTextsBeyondTheContextWithBothCounts) {
  Embedder e = embedder(golden_model("bert"), std::nullopt);
  EXPECT_EQ(e.context(), 64);
  EXPECT_EQ(e.pooling(), Pooling::mean);
  std::vector<Passage> texts = passages(2);
  texts[1].tokens.assign(65, 7);
  try {
    e.embed(texts);
    FAIL() << "nothing thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::context_overflow);
    EXPECT_EQ(error.message(), "text 1 has 65 tokens, the context holds 64");
  }
  texts[1].tokens.clear();
  EXPECT_THROW(e.embed(texts), Error);
  texts[1].tokens = {128};
  EXPECT_THROW(e.embed(texts), Error);
  engine::truncate(e.model(), texts[1], 64);
  EXPECT_EQ(texts[1].tokens.size(), 1U);
}

TEST(Embedder, TruncationKeepsTheTokenBehindTheText) {
  const auto model = golden_model("bert");
  Passage text = engine::make_passage(*model, "the the the the the the the");
  const std::int32_t last = text.tokens.back();
  EXPECT_EQ(last, *model->tokenizer().separator);
  engine::truncate(*model, text, 4);
  ASSERT_EQ(text.tokens.size(), 4U);
  EXPECT_EQ(text.tokens.back(), last);
}

TEST(Embedder, RefusesAContextThatThePositionsDoNotHave) {
  EXPECT_THROW(embedder(golden_model("bert"), std::nullopt, 1, 512, 65), Error);
  engine::EmbedderOptions options;
  options.memory_budget = 1000;
  EXPECT_THROW(Embedder(golden_model("bert"), options), Error);
}

TEST(Embedder, AnEngineOfAnEncoderRefusesToGenerate) {
  engine::Engine engine(golden_model("bert"), engine_options({.context = 64}));
  engine::Request request;
  request.prompt = {2, 7, 3};
  try {
    engine.submit(request);
    FAIL() << "nothing thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(error.message().find("vectors of texts and no text"), std::string::npos);
  }
}

/// [CLS] query [SEP] document [SEP], the second text with type 1, as BERT was trained.
TEST(Pairs, OfBertHaveASeparatorAndTypes) {
  const auto model = golden_model("bert_rank");
  const text::Tokenizer& t = model->tokenizer();
  const auto query = t.encode("the", {.add_special = false}),
             document = t.encode("a the", {.add_special = false});
  std::vector<std::int32_t> expected{*t.cls};
  expected.insert(expected.end(), query.begin(), query.end());
  expected.push_back(*t.separator);
  const std::size_t first = expected.size();
  expected.insert(expected.end(), document.begin(), document.end());
  expected.push_back(*t.separator);
  const Passage pair = engine::make_pair(*model, "the", "a the");
  EXPECT_EQ(pair.tokens, expected);
  for (std::size_t i = 0; i < pair.types.size(); ++i) EXPECT_EQ(pair.types[i], i < first ? 0 : 1) << i;

  // The types reach the model.
  Embedder e = embedder(model, Pooling::rank);
  Passage without = pair;
  without.types.clear();
  const std::vector<Passage> both{pair, without};
  const auto scores = e.embed(both);
  EXPECT_EQ(e.width(), 1);
  EXPECT_NE(scores[0], scores[1]);
}

/// A file's rerank template; what the texts spell stays text.
TEST(Pairs, OfATemplateAreFilledIn) {
  TinyModelOptions options;
  options.extra.emplace_back("tokenizer.chat_template.rerank",
                             tiny::text("<|im_start|>q {query} d {document}<|im_end|>"));
  const auto model = tiny_model(options);
  const text::Tokenizer& t = model->tokenizer();
  const Passage pair = engine::make_pair(*model, "x<|im_end|>", "{query}");
  EXPECT_EQ(t.decode(pair.tokens, true), "<|im_start|>q x<|im_end|> d {query}<|im_end|>");
  const std::int32_t end = *t.find("<|im_end|>");
  EXPECT_EQ(std::count(pair.tokens.begin(), pair.tokens.end(), end), 1);
  EXPECT_EQ(pair.tokens.back(), end);
}

TEST(Normalize, GivesLengthOne) {
  std::vector<float> vector{3, -4};
  engine::normalize(vector);
  EXPECT_EQ(vector, (std::vector<float>{0.6f, -0.8f}));
  std::vector<float> zeros{0, 0};
  engine::normalize(zeros);
  EXPECT_EQ(zeros, (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace quipu::test
