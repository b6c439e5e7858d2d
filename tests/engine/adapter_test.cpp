// Requests with different adapters on one engine: field case 35 (llama.cpp#26207), and its kinds.
#include <gtest/gtest.h>

#include "engine_fixture.hpp"
#include "tiny_adapter.hpp"

namespace quipu {
namespace {

using engine::Request;
using test::Trace;

engine::Engine engine_with_adapters(test::EngineSettings settings) {
  static const auto a = test::random_adapter(*test::shared_tiny_model(), 1, 4),
                    b = test::random_adapter(*test::shared_tiny_model(), 2, 3);
  engine::EngineOptions options = test::engine_options(settings);
  options.adapters = {a, b};
  return engine::Engine(test::shared_tiny_model(), options);
}

const std::vector<std::vector<float>>& mixes() {
  static const std::vector<std::vector<float>> mixes = {{1, 0}, {0, 1}, {0.5F, 0}, {}, {0.25F, -1}};
  return mixes;
}

/// Longer than a page, so that there is a prefix to share.
Request request(const std::vector<float>& adapters) {
  Request request = test::greedy(test::random_prompt(7, 150), 12);
  request.adapters = adapters;
  return request;
}

/// Each on an engine of its own, without a cache; the last without adapters at all.
const std::vector<Trace>& alone() {
  static const std::vector<Trace> traces = [] {
    std::vector<Trace> list;
    for (const auto& mix : mixes()) {
      engine::Engine engine = mix.empty() ? test::make_engine() : engine_with_adapters({});
      list.push_back(test::trace_of(engine, request(mix)));
    }
    return list;
  }();
  return traces;
}

TEST(Adapters, EachChangesTheAnswer) {
  for (std::size_t i = 0; i < mixes().size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(alone()[i].logits, alone()[j].logits) << i << " " << j;
}

TEST(Adapters, OneAfterTheOtherOnOneCacheAnswersAsAlone) {
  engine::Engine engine = engine_with_adapters({.pool_pages = 64, .prefix_cache = true});
  for (int round = 0; round < 2; ++round)
    for (std::size_t i = 0; i < mixes().size(); ++i) {
      Request next = request(mixes()[i]);
      Trace trace;
      test::record(next, trace);
      const engine::Result result = engine.generate(std::move(next));
      EXPECT_EQ(trace, alone()[i]) << "mix " << i;
      // Nothing of another set's pages the first time, its own the second.
      EXPECT_EQ(result.usage.cached_tokens, round == 0 ? 0 : 149) << "mix " << i;
    }
}

TEST(Adapters, InOneBatchEachAnswersAsAlone) {
  for (const bool prefix_cache : {false, true})
    for (const int threads : {prefix_cache ? 2 : 1}) {
      engine::Engine engine = engine_with_adapters(
          {.sequences = 5, .batch = 64, .threads = threads, .prefix_cache = prefix_cache});
      std::vector<Trace> traces(mixes().size());
      for (std::size_t i = 0; i < mixes().size(); ++i) {
        Request next = request(mixes()[i]);
        test::record(next, traces[i]);
        engine.submit(std::move(next));
      }
      while (engine.step()) {
      }
      for (std::size_t i = 0; i < mixes().size(); ++i)
        EXPECT_EQ(traces[i], alone()[i]) << i << " " << threads;
    }
}

TEST(Adapters, AKeptSequenceIsNotReusedUnderOthers) {
  engine::Engine engine = engine_with_adapters({.pool_pages = 64});
  std::optional<memory::Sequence> kept;
  test::trace_of(engine, request({1, 0}), nullptr, &kept);
  ASSERT_TRUE(kept);
  memory::Sequence same = kept->fork();
  EXPECT_EQ(test::trace_of(engine, request({0, 1}), &*kept), alone()[1]);
  EXPECT_EQ(test::trace_of(engine, request({1, 0}), &same), alone()[0]);
}

TEST(Adapters, AStateFileIsBoundToItsAdapters) {
  engine::Engine engine = engine_with_adapters({.pool_pages = 64});
  std::optional<memory::Sequence> kept;
  test::trace_of(engine, request({1, 0}), nullptr, &kept);
  const test::TemporaryFolder folder;
  const std::uint64_t fingerprint = engine.model().fingerprint();
  kept->save(folder / "state", fingerprint);
  const std::vector<float> one{1, 0}, other{0, 1};
  memory::Sequence again = engine.new_sequence(one), others = engine.new_sequence(other);
  again.restore(folder / "state", fingerprint);
  EXPECT_EQ(again.length(), kept->length());
  EXPECT_THROW(others.restore(folder / "state", fingerprint), Error);
  EXPECT_EQ(test::trace_of(engine, request(one), &again), alone()[0]);
}

TEST(Adapters, ScalesMustFitTheEngine) {
  engine::Engine engine = engine_with_adapters({});
  for (const std::vector<float>& bad : {std::vector<float>{1}, {1, 2, 3}, {1, NAN}})
    EXPECT_THROW(engine.submit(request(bad)), Error);
  engine::Engine without = test::make_engine();
  EXPECT_THROW(without.submit(request({1, 0})), Error);
}

TEST(Adapters, TheirBytesCountAsWeights) {
  const std::uint64_t with = engine_with_adapters({}).memory().weights;
  EXPECT_GT(with, test::make_engine().memory().weights);
}

}  // namespace
}  // namespace quipu
