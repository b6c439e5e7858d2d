// Engines over a model that encodes its prompt (T5): what transformers' `generate` writes, the same bytes in
// any company, and refusals of what cannot be.
#include <gtest/gtest.h>

#include <functional>

#include "convert_folder.hpp"
#include "engine/embedder.hpp"
#include "engine_fixture.hpp"
#include "models/golden.hpp"

namespace quipu::test {
namespace {

using engine::Engine;
using engine::Request;
using engine::StopReason;

const std::shared_ptr<const models::Model>& t5() {
  static const ModelFolder folder("t5");
  static const auto model = models::Model::load(folder.path());
  return model;
}

Golden golden() { return Golden(convert_golden("t5") / "logits.gguf"); }

std::vector<std::int32_t> prompt(std::uint64_t seed, std::size_t length) {
  return random_prompt(seed, length, 350);
}

Request subject() { return greedy(prompt(1, 150), 20); }

Trace alone(const Request& request, bool reference, std::int64_t batch = 512, int threads = 1) {
  Engine engine = make_engine({.batch = batch, .threads = threads, .reference = reference}, t5());
  return trace_of(engine, request);
}

class EncodedPrompts : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Backends, EncodedPrompts, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Reference" : "Cpu"; });

TEST_P(EncodedPrompts, GreedyTokensAreThoseOfTransformers) {
  Engine engine = make_engine({.reference = GetParam(), .kv = DType::f32}, t5());
  const auto expected = golden().ints("generated");
  const engine::Result result = engine.generate(greedy(golden().ints("tokens"), std::ssize(expected)));
  EXPECT_EQ(result.tokens, expected);
  EXPECT_EQ(result.stop, StopReason::max_tokens);
  EXPECT_EQ(result.usage.prompt_tokens, std::ssize(golden().ints("tokens")));
  EXPECT_EQ(result.usage.cached_tokens, 0);
}

TEST_P(EncodedPrompts, BatchThreadsAndNeighboursDoNotMatter) {
  const Trace expected = alone(subject(), GetParam());
  EXPECT_EQ(expected.tokens.size(), 20U);
  EXPECT_EQ(alone(subject(), GetParam(), 7, 2), expected);
  for (const std::int64_t batch : {4, 512}) {
    EngineSettings s{.sequences = 3, .batch = batch, .reference = GetParam(), .scatter = true};
    s.prefix_cache = true;  // which such a model does without
    Engine engine = make_engine(s, t5());
    std::vector<Request> requests{greedy(prompt(5, 1), 30), subject(), greedy(prompt(1, 130), 9), subject()};
    std::vector<Trace> traces(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      Request request = requests[i];
      record(request, traces[i]);
      engine.submit(std::move(request));
    }
    while (engine.step()) {
    }
    EXPECT_EQ(traces[1], expected);
    EXPECT_EQ(traces[3], expected);
    for (const std::size_t i : {0U, 2U}) EXPECT_EQ(alone(requests[i], GetParam()), traces[i]) << i;
  }
}

TEST_P(EncodedPrompts, PreemptionDoesNotMatter) {
  // Three sequences want ten pages; there are four, and those who give theirs up are encoded again.
  std::vector<Request> requests{greedy(prompt(21, 60), 100), subject(), greedy(prompt(22, 100), 80)};
  Engine engine =
      make_engine({.sequences = 3, .reference = GetParam(), .pool_pages = 4, .scatter = true}, t5());
  std::vector<Trace> traces(requests.size());
  std::vector<engine::RequestId> ids;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Request request = requests[i];
    record(request, traces[i]);
    ids.push_back(engine.submit(std::move(request)));
  }
  while (engine.step()) {
  }
  EXPECT_GT(engine.stats().preemptions, 0U);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto result = engine.take_result(ids[i]);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->stop, StopReason::max_tokens) << result->error;
    EXPECT_EQ(alone(requests[i], GetParam()), traces[i]) << i;
  }
}

TEST(EncodedPrompt, IsReadWholeWhateverTheBatchAndCountsAsRows) {
  Engine engine = make_engine({.batch = 16}, t5());
  engine.submit(greedy(prompt(1, 200), 3));
  ASSERT_TRUE(engine.step());
  EXPECT_EQ(engine.stats().rows, 200);
  ASSERT_TRUE(engine.step());
  EXPECT_EQ(engine.stats().rows, 1);
}

TEST(EncodedPrompt, IsNoBaseToContinueFrom) {
  const Trace expected = alone(subject(), false);
  Engine engine = make_engine({}, t5());
  std::optional<memory::Sequence> kept;
  std::vector<std::int32_t> longer = subject().prompt;
  longer.push_back(7);
  engine.generate(greedy(longer, 4), nullptr, &kept);
  ASSERT_TRUE(kept);
  EXPECT_EQ(trace_of(engine, subject(), &*kept), expected);
}

TEST(EncodedPrompt, LeavesItsLengthToTheAnswer) {
  Engine engine = make_engine({.context = 64}, t5());
  const engine::Result result = engine.generate(greedy(prompt(3, 50), -1));
  EXPECT_EQ(result.stop, StopReason::context_full);
  EXPECT_EQ(result.tokens.size(), 64U - 50 - 1);  // the decoder's first token stands there too
  // By default each side has the trained context, of 512.
  EXPECT_EQ(make_engine({.context = 0}, t5()).memory().context, 1024);
  EXPECT_EQ(engine.generate(greedy(prompt(3, 50), 0)).stop, StopReason::max_tokens);
}

TEST(EncodedPrompt, OfAPoolThatIsTooSmallEndsWithAnError) {
  Engine engine = make_engine({.pool_pages = 2}, t5());
  const engine::Result result = engine.generate(greedy(prompt(3, 200), 1));
  EXPECT_EQ(result.stop, StopReason::error);
  EXPECT_NE(result.error.find("all 2 cache pages are in use"), std::string::npos) << result.error;
}

TEST(EncodedPrompt, RefusesWhatAnEncoderCannotDo) {
  Engine engine = make_engine({.context = 64}, t5());
  const auto refusal = [&](const std::function<void(Request&)>& change) {
    Request request = greedy(prompt(3, 20), 4);
    change(request);
    try {
      engine.submit(std::move(request));
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("accepted");
  };
  const auto says = [](const std::string& text, const char* part) { return text.find(part) != text.npos; };
  EXPECT_TRUE(
      says(refusal([](Request& r) { r.want_prompt_logits = true; }), "the model's encoder gives none"));
  EXPECT_TRUE(says(refusal([](Request& r) { r.context_shift = true; }), "reads prompts whole"));
  EXPECT_TRUE(
      says(refusal([](Request& r) { r.prompt = prompt(3, 63); }), "leaves nothing of the context's 64"));
  EXPECT_EQ(refusal([](Request& r) { r.prompt = prompt(3, 62); }), "accepted");
  EXPECT_THROW(engine.check_continues(), Error);
  EXPECT_NO_THROW(make_engine().check_continues());
}

/// The first word of an answer stands behind the decoder's first token, which is a control token.
TEST(EncodedPrompt, TextOfTheAnswerIsWhatTheTokenizerDecodes) {
  Engine engine = make_engine({}, t5());
  const engine::Result result = engine.generate(greedy(t5()->tokenizer().encode("the quick fox"), 12));
  EXPECT_EQ(t5()->tokenizer().encode("the quick fox").back(), *t5()->tokenizer().eos);
  EXPECT_EQ(result.text, t5()->tokenizer().decode(result.tokens));
}

TEST(EncodedPrompt, IsWhatTheModelsVectorsAreMadeOf) {
  engine::EmbedderOptions options;
  options.pooling = models::Pooling::none;
  engine::Embedder embedder(t5(), options);
  const engine::Passage passage{golden().ints("tokens"), {}};
  const auto vectors = embedder.embed({&passage, 1});
  EXPECT_GE(cosine(vectors.front(), golden().floats("encoded")), 0.9999);
  EXPECT_EQ(engine::default_pooling(*t5()), models::Pooling::mean);
}

}  // namespace
}  // namespace quipu::test
