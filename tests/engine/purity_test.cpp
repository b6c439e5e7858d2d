// Output is a pure function of weights, tokens and seed: bytes of logits, whatever else goes on.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "engine_fixture.hpp"

namespace quipu::engine {
namespace {

using test::EngineSettings;
using test::greedy;
using test::make_engine;
using test::random_prompt;
using test::Trace;
using test::trace_of;

constexpr std::int64_t kDraws = 20;

Request subject() { return greedy(random_prompt(1, 150), kDraws); }

/// Alone, in one batch.
Trace expected(const EngineSettings& settings = {}) {
  Engine engine = make_engine(settings);
  Trace trace = trace_of(engine, subject());
  EXPECT_EQ(trace.tokens.size(), static_cast<std::size_t>(kDraws));
  EXPECT_GT(std::set<std::int32_t>(trace.tokens.begin(), trace.tokens.end()).size(), 3u);
  return trace;
}

class Purity : public ::testing::TestWithParam<bool> {
 protected:
  EngineSettings settings() const {
    EngineSettings s;
    s.reference = GetParam();
    return s;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, Purity, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Reference" : "Cpu"; });

TEST_P(Purity, BatchSizeDoesNotMatter) {
  const Trace alone = expected(settings());
  for (const std::int64_t batch : {1, 7, 32, 64, 100}) {
    EngineSettings s = settings();
    s.batch = batch;
    EXPECT_EQ(expected(s), alone) << "-b " << batch;
  }
}

TEST_P(Purity, ThreadsDoNotMatter) {
  EngineSettings s = settings();
  const Trace alone = expected(s);
  for (const int threads : {2, 3, 4}) {
    s.threads = threads;
    EXPECT_EQ(expected(s), alone) << threads;
  }
}

TEST_P(Purity, NeighboursDoNotMatter) {
  const Trace alone = expected(settings());
  for (const std::int64_t batch : {16, 512}) {
    EngineSettings s = settings();
    s.sequences = 4;
    s.batch = batch;
    Engine engine = make_engine(s);
    std::vector<Trace> traces(4);
    std::vector<Request> requests{greedy(random_prompt(5, 3), 40), subject(),
                                  greedy(random_prompt(6, 230), 9), greedy(random_prompt(7, 64), 30)};
    std::vector<RequestId> ids;
    for (std::size_t i = 0; i < 4; ++i) {
      test::record(requests[i], traces[i]);
      ids.push_back(engine.submit(requests[i]));
    }
    while (engine.step()) {
    }
    EXPECT_EQ(traces[1], alone);
    // And the neighbours are what they are alone.
    for (const std::size_t i : {std::size_t{0}, std::size_t{2}, std::size_t{3}}) {
      Engine single = make_engine(settings());
      Request request = requests[i];
      EXPECT_EQ(trace_of(single, request), traces[i]) << i;
    }
  }
}

TEST_P(Purity, PageNumbersDoNotMatter) {
  const Trace alone = expected(settings());
  EngineSettings s = settings();
  s.scatter = true;
  s.sequences = 3;
  EXPECT_EQ(expected(s), alone);
}

TEST_P(Purity, RepeatingDoesNotMatter) {
  Engine engine = make_engine(settings());
  const Trace first = trace_of(engine, subject());
  trace_of(engine, greedy(random_prompt(9, 33), 5));
  EXPECT_EQ(trace_of(engine, subject()), first);
}

TEST_P(Purity, SampledDrawsFollowTheSeedAlone) {
  Request request = subject();
  request.sampling.temperature = 1.2;
  request.sampling.seed = 1337;
  const auto run = [&](const EngineSettings& s) {
    Engine engine = make_engine(s);
    return trace_of(engine, request);
  };
  EngineSettings chunks = settings();
  chunks.batch = 11;
  const Trace once = run(settings());
  EXPECT_EQ(run(chunks), once);
  request.sampling.seed = 1338;
  EXPECT_NE(run(settings()).tokens, once.tokens);
}

TEST_P(Purity, ReuseOfAStoredPrefixDoesNotMatter) {
  const Trace alone = expected(settings());
  Engine engine = make_engine(settings());
  // The base shares 90 tokens, ends inside a page and goes on with others.
  std::vector<std::int32_t> other = random_prompt(1, 90);
  const auto tail = random_prompt(44, 25);
  other.insert(other.end(), tail.begin(), tail.end());
  std::optional<memory::Sequence> kept;
  engine.generate(greedy(other, 4), nullptr, &kept);
  ASSERT_TRUE(kept);
  Request request = subject();
  Trace trace;
  test::record(request, trace);
  const Result result = engine.generate(request, &*kept, &kept);
  EXPECT_EQ(trace, alone);
  EXPECT_EQ(result.usage.cached_tokens, 90);
  // Again over its own memory: all but the last prompt token.
  const Result again = engine.generate(subject(), &*kept, &kept);
  EXPECT_EQ(again.usage.cached_tokens, 149);
  EXPECT_EQ(again.tokens, alone.tokens);
}

TEST_P(Purity, SavingAndRestoringDoesNotMatter) {
  const Trace alone = expected(settings());
  test::TemporaryFolder folder;
  std::vector<std::int32_t> whole = subject().prompt;
  for (const std::size_t stored : {std::size_t{1}, std::size_t{64}, std::size_t{101}, std::size_t{150}}) {
    {
      Engine engine = make_engine(settings());
      std::optional<memory::Sequence> kept;
      engine.generate(greedy({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(stored)}, 0),
                      nullptr, &kept);
      ASSERT_EQ(kept->length(), static_cast<std::int64_t>(stored));
      kept->save(folder / "state", engine.model().fingerprint());
    }
    EngineSettings s = settings();
    s.scatter = true;
    s.batch = 40;
    Engine engine = make_engine(s);
    memory::Sequence base = engine.new_sequence();
    base.restore(folder / "state", engine.model().fingerprint());
    EXPECT_EQ(trace_of(engine, subject(), &base), alone) << stored;
  }
}

TEST_P(Purity, PreemptionDoesNotMatter) {
  // Four sequences of up to 170 + 20 positions want 12 pages; there are 4. All get the same bytes in the end.
  std::vector<Request> requests{greedy(random_prompt(21, 60), 100), subject(),
                                greedy(random_prompt(22, 100), 80), greedy(random_prompt(23, 5), 90)};
  EngineSettings s = settings();
  s.sequences = 4;
  s.pool_pages = 4;
  s.scatter = true;
  Engine engine = make_engine(s);
  std::vector<Trace> traces(4);
  std::vector<RequestId> ids;
  for (std::size_t i = 0; i < 4; ++i) {
    Request request = requests[i];
    test::record(request, traces[i]);
    ids.push_back(engine.submit(std::move(request)));
  }
  while (engine.step()) {
  }
  for (std::size_t i = 0; i < 4; ++i) {
    const auto result = engine.take_result(ids[i]);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->stop, StopReason::max_tokens) << result->error;
    Engine single = make_engine(settings());
    EXPECT_EQ(trace_of(single, requests[i]), traces[i]) << i;
  }
}

TEST_P(Purity, ThePrefixCacheDoesNotMatterAndTellsWhatItShared) {
  for (const std::uint32_t pages : {0u, 5u}) {  // with room for everything, and with hardly any
    EngineSettings s = settings();
    s.sequences = 2;
    s.pool_pages = pages;
    s.prefix_cache = true;
    Engine engine = make_engine(s);
    std::vector<std::int32_t> sibling = random_prompt(1, 130);
    sibling.resize(160, 5);
    std::vector<Request> requests{subject(), greedy(sibling, 20), subject(),
                                  greedy(random_prompt(77, 140), 60), subject()};
    std::vector<Trace> traces(requests.size());
    std::vector<RequestId> ids;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      Request request = requests[i];
      test::record(request, traces[i]);
      ids.push_back(engine.submit(std::move(request)));
    }
    while (engine.step()) {
    }
    std::int64_t cached = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Result result = engine.take_result(ids[i]).value();
      EXPECT_EQ(result.stop, StopReason::max_tokens) << result.error;
      cached += result.usage.cached_tokens;
      Engine single = make_engine(settings());
      EXPECT_EQ(trace_of(single, requests[i]), traces[i]) << i;
    }
    if (pages == 0) {
      EXPECT_GE(cached, 2 * 149);        // the repeats, which start later: all but the last token
      EXPECT_LE(cached, 2 * 149 + 130);  // and the sibling
    }
  }
}

TEST_P(Purity, ATurnCostsItsNewTokens) {
  EngineSettings s = settings();
  s.prefix_cache = true;
  s.context = 400;
  s.pool_pages = 12;
  Engine engine = make_engine(s);
  std::vector<std::int32_t> prompt = random_prompt(51, 75);
  for (std::uint64_t turn = 0; turn < 5; ++turn) {
    Request request = greedy(prompt, 12);
    Trace trace;
    test::record(request, trace);
    const Result result = engine.generate(std::move(request));
    Engine single = make_engine(s);
    EXPECT_EQ(trace_of(single, greedy(prompt, 12)), trace) << turn;
    // New are the other side's 30 tokens and the answer's last one, which nothing was computed behind.
    const auto known = static_cast<std::int64_t>(prompt.size()) - 31;
    EXPECT_EQ(result.usage.cached_tokens, turn == 0 ? 0 : known) << turn;
    prompt.insert(prompt.end(), result.tokens.begin(), result.tokens.end());
    const auto next = random_prompt(60 + turn, 30);
    prompt.insert(prompt.end(), next.begin(), next.end());
  }
}

TEST_P(Purity, AShiftEqualsAFreshRunOnTheTokensThatStay) {
  EngineSettings s = settings();
  s.context = 64;
  Engine engine = make_engine(s);
  Request request = greedy(random_prompt(31, 40), 30);
  request.context_shift = true;
  request.keep = 6;
  Trace shifted;
  test::record(request, shifted);
  const Result result = engine.generate(request);
  ASSERT_EQ(result.tokens.size(), 30u);
  // After 24 tokens the context of 64 is full: 6 stay in front, of the other 58 the newer 29.
  std::vector<std::int32_t> all = random_prompt(31, 40);
  all.insert(all.end(), result.tokens.begin(), result.tokens.begin() + 24);
  std::vector<std::int32_t> rest(all.begin(), all.begin() + 6);
  rest.insert(rest.end(), all.end() - 29, all.end());
  Engine fresh = make_engine(s);
  const Trace after = trace_of(fresh, greedy(rest, 6));
  const std::size_t row = shifted.logits.size() / 30;
  EXPECT_EQ(shifted.logits.substr(24 * row), after.logits);
}

TEST_P(Purity, CacheTypesAllHoldTheContract) {
  for (const DType kv : graph::kCacheDtypes) {
    test::TinyModelOptions wide;
    wide.heads = 2;  // head size 32, which quantised types need
    wide.kv_heads = 1;
    const auto model = test::tiny_model(wide);
    EngineSettings s = settings();
    s.kv = kv;
    Engine whole = make_engine(s, model);
    const Trace once = trace_of(whole, subject());
    s.batch = 9;
    s.threads = 2;
    s.scatter = true;
    Engine chunks = make_engine(s, model);
    EXPECT_EQ(trace_of(chunks, subject()), once) << to_string(kv);
  }
}

TEST_P(Purity, QuantisedWeightsHoldTheContract) {
  for (const DType dtype : {DType::q4_0, DType::q4_1, DType::q8_0, DType::q4_k, DType::q6_k, DType::bf16}) {
    test::TinyModelOptions options;
    options.embedding = options.feed_forward = 256;
    options.layers = 1;
    options.matrix_dtype = options.embedding_dtype = dtype;
    const auto model = test::tiny_model(options);
    EngineSettings s = settings();
    Engine whole = make_engine(s, model);
    const Trace once = trace_of(whole, subject());
    s.batch = 13;
    s.threads = 2;
    Engine chunks = make_engine(s, model);
    EXPECT_EQ(trace_of(chunks, subject()), once) << to_string(dtype);
  }
}

TEST(Engines, TwoInTwoThreadsDoNotDisturbEachOther) {
  const Trace alone = expected();
  std::vector<Trace> traces(2);
  std::vector<std::thread> threads;
  for (Trace& trace : traces) {
    threads.emplace_back([&trace] {
      EngineSettings s;
      s.threads = 2;
      Engine engine = make_engine(s);
      trace = trace_of(engine, subject());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(traces[0], alone);
  EXPECT_EQ(traces[1], alone);
}

TEST(DefaultModel, GreedyBytesDoNotDependOnThreadsBatchCompanyOrRestore) {
  const auto path = test::default_model_path();
  QUIPU_REQUIRE_MODEL(path);
  const auto model = models::Model::load(path);
  const std::vector<std::int32_t> prompt = model->tokenizer().encode(
      "<|im_start|>user\nName three rivers of Europe and say where each one "
      "ends.<|im_end|>\n<|im_start|>assistant\n");
  const Request request = greedy(prompt, 12);
  EngineSettings s;
  Engine first = make_engine(s, model);
  const Trace alone = trace_of(first, request);
  s.threads = 2;
  s.batch = 7;
  Engine chunks = make_engine(s, model);
  EXPECT_EQ(trace_of(chunks, request), alone);
  s.batch = 32;
  s.sequences = 4;
  s.scatter = true;
  Engine crowd = make_engine(s, model);
  Trace beside;
  Request subject = request;
  test::record(subject, beside);
  crowd.submit(greedy(random_prompt(1, 3, 49000), 12));
  crowd.submit(std::move(subject));
  crowd.submit(greedy(random_prompt(2, 70, 49000), 12));
  crowd.submit(greedy(random_prompt(3, 20, 49000), 12));
  while (crowd.step()) {
  }
  EXPECT_EQ(beside, alone);
  test::TemporaryFolder folder;
  std::optional<memory::Sequence> kept;
  chunks.generate(greedy({prompt.begin(), prompt.end() - 4}, 0), nullptr, &kept);
  kept->save(folder / "state", model->fingerprint());
  memory::Sequence base = crowd.new_sequence();
  base.restore(folder / "state", model->fingerprint());
  EXPECT_EQ(trace_of(crowd, request, &base), alone);
}

}  // namespace
}  // namespace quipu::engine
