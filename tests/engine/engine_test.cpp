// What an engine answers: results, refusals, stopping, counts.
#include "engine/engine.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <stdexcept>

#include "engine_fixture.hpp"

namespace quipu::engine {
namespace {

using test::EngineSettings;
using test::greedy;
using test::make_engine;
using test::random_prompt;

std::pair<ErrorCode, std::string> refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return {error.code(), error.message()};
  }
  return {ErrorCode::internal, "accepted"};
}

/// Draws ASCII characters only: every token of the output is a character or two of its text.
Request ascii(std::int64_t max_tokens) {
  Request request = greedy(random_prompt(3, 10), max_tokens);
  for (std::int32_t id = 0; id < 263; ++id) {
    if (id < 32 || id > 126) request.sampling.logit_bias[id] = -INFINITY;
  }
  return request;
}

TEST(EngineResult, StreamedTextEqualsTheResult) {
  Engine engine = make_engine();
  std::string streamed;
  std::size_t events = 0;
  Request request = ascii(40);
  request.on_token = [&](const TokenEvent& event) {
    streamed += event.text;
    ++events;
    EXPECT_EQ(event.logits.size(), engine.model().hyperparameters().vocab);
  };
  const Result result = engine.generate(request);
  EXPECT_EQ(events, 40u);
  EXPECT_EQ(result.text, streamed);
  EXPECT_EQ(result.stop, StopReason::max_tokens);
  EXPECT_EQ(result.text, engine.model().tokenizer().decode(result.tokens));
  EXPECT_EQ(result.usage.prompt_tokens, 10);
  EXPECT_EQ(result.usage.completion_tokens, 40);
  EXPECT_EQ(result.usage.cached_tokens, 0);
  EXPECT_GT(result.usage.first_token_ms, 0);
}

TEST(EngineResult, EndOfGenerationStopsAndIsNotPartOfTheOutput) {
  Engine engine = make_engine();
  const std::int32_t eos = *engine.model().tokenizer().eos;
  Request request = greedy(random_prompt(3, 10), 40);
  request.ignore_eos = false;
  request.sampling.logit_bias[eos] = 1000;
  std::vector<std::int32_t> seen;
  request.on_token = [&](const TokenEvent& event) { seen.push_back(event.token); };
  const Result result = engine.generate(request);
  EXPECT_EQ(result.stop, StopReason::end_of_generation);
  EXPECT_TRUE(result.tokens.empty());
  EXPECT_EQ(result.text, "");
  EXPECT_EQ(seen, std::vector<std::int32_t>{eos});
  request.ignore_eos = true;
  EXPECT_EQ(engine.generate(request).stop, StopReason::max_tokens);
}

TEST(EngineResult, MaxTokensZeroComputesThePromptOnly) {
  Engine engine = make_engine();
  std::optional<memory::Sequence> kept;
  const Result result = engine.generate(greedy(random_prompt(3, 70), 0), nullptr, &kept);
  EXPECT_EQ(result.stop, StopReason::max_tokens);
  EXPECT_TRUE(result.tokens.empty());
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->length(), 70);
}

TEST(EngineStop, TextBeforeTheStopStringAndItsTokens) {
  Engine engine = make_engine();
  // Any three characters of a known output serve as the stop string.
  const Result known = engine.generate(ascii(40));
  ASSERT_EQ(known.text.size(), 40u);
  for (std::size_t first = 0; first + 3 <= 40; first += 5) {
    const std::string stop = known.text.substr(first, 3);
    const std::size_t at = known.text.find(stop);
    Request request = ascii(40);
    request.stop = {"never this text", stop};
    std::string streamed;
    request.on_token = [&](const TokenEvent& event) { streamed += event.text; };
    const Result result = engine.generate(request);
    EXPECT_EQ(result.stop, StopReason::stop_string);
    EXPECT_EQ(result.text, known.text.substr(0, at));
    EXPECT_EQ(streamed, result.text);
    // One character a token: what lies in the stop string is no output.
    EXPECT_EQ(result.tokens,
              std::vector<std::int32_t>(known.tokens.begin(),
                                        known.tokens.begin() + static_cast<std::ptrdiff_t>(at)));
    EXPECT_EQ(result.usage.completion_tokens, static_cast<std::int64_t>(at));
  }
}

TEST(EngineStop, HeldTextIsReleasedWhenTheOutputEnds) {
  Engine engine = make_engine();
  const Result known = engine.generate(ascii(12));
  Request request = ascii(12);
  request.stop = {known.text + "!!"};  // everything might become this
  std::vector<std::string> pieces;
  request.on_token = [&](const TokenEvent& event) { pieces.push_back(event.text); };
  const Result result = engine.generate(request);
  EXPECT_EQ(result.text, known.text);
  EXPECT_EQ(result.stop, StopReason::max_tokens);
  EXPECT_EQ(pieces.back(), known.text);
}

TEST(EngineContext, PromptsThatDoNotFitAreErrorsWithBothCounts) {
  EngineSettings s;
  s.context = 512;
  Engine engine = make_engine(s);
  EXPECT_EQ(refusal([&] { engine.submit(greedy(random_prompt(1, 700), 5)); }),
            std::pair(ErrorCode::context_overflow,
                      std::string("the prompt has 700 tokens, the context holds 512: 188 too many (a larger "
                                  "context: -c)")));
  const Result limit = engine.generate(greedy(random_prompt(1, 500), 100));
  EXPECT_EQ(limit.stop, StopReason::context_full);
  EXPECT_EQ(limit.tokens.size(), 12u);  // 500 + 12 = 512
  const Result full = engine.generate(greedy(random_prompt(1, 512), 100));
  EXPECT_EQ(full.stop, StopReason::context_full);
  EXPECT_TRUE(full.tokens.empty());
}

TEST(EngineContext, AShiftGoesOnForever) {
  EngineSettings s;
  s.context = 40;
  Engine engine = make_engine(s);
  for (const std::int64_t keep : {0, 5, -1}) {
    Request request = greedy(random_prompt(1, 30), 300);
    request.context_shift = true;
    request.keep = keep;
    std::optional<memory::Sequence> kept;
    const Result result = engine.generate(request, nullptr, &kept);
    EXPECT_EQ(result.stop, StopReason::max_tokens);
    EXPECT_EQ(result.tokens.size(), 300u);
    const std::size_t stays = keep < 0 ? 30 : static_cast<std::size_t>(keep);
    EXPECT_TRUE(std::equal(request.prompt.begin(),
                           request.prompt.begin() + static_cast<std::ptrdiff_t>(stays),
                           kept->tokens().begin()));
    EXPECT_LE(kept->length(), 40);
  }
  Request full = greedy(random_prompt(1, 40), 3);
  full.context_shift = true;
  EXPECT_EQ(engine.generate(full).tokens.size(), 3u);
}

TEST(EngineContext, ABosStaysInFrontOfAShiftedContext) {
  test::TinyModelOptions spm;
  spm.spm = true;
  EngineSettings s;
  s.context = 40;
  Engine engine = make_engine(s, test::tiny_model(spm));
  Request request = greedy(engine.model().tokenizer().encode("abc def"), 100);
  ASSERT_EQ(request.prompt.front(), 1);
  request.context_shift = true;
  std::optional<memory::Sequence> kept;
  engine.generate(request, nullptr, &kept);
  EXPECT_EQ(kept->tokens()[0], 1);
}

TEST(EngineText, ASpaceAfterThePromptIsTextAndAtTheStartItIsThePrefixOfTheVocabulary) {
  test::TinyModelOptions spm;
  spm.spm = true;
  Engine engine = make_engine({}, test::tiny_model(spm));
  const std::int32_t spaced_t = engine.model().tokenizer().encode("t").back();  // "\u2581t"
  const auto text = [&](std::vector<std::int32_t> prompt) {
    Request request = greedy(std::move(prompt), 2);
    request.sampling.logit_bias[spaced_t] = 1e6F;
    return engine.generate(request).text;
  };
  EXPECT_EQ(text(engine.model().tokenizer().encode("abc")), " t t");
  EXPECT_EQ(text({1}), "t t");  // BOS alone
}

TEST(EngineRequest, RefusalsNameTheParameter) {
  Engine engine = make_engine();
  const auto message = [&](const std::function<void(Request&)>& change) {
    Request request = greedy(random_prompt(1, 10), 5);
    change(request);
    const auto [code, text] = refusal([&] { engine.submit(request); });
    EXPECT_EQ(code, ErrorCode::invalid_argument) << text;
    return text;
  };
  EXPECT_EQ(message([](Request& r) { r.prompt.clear(); }),
            "the prompt is empty; at least one token is needed");
  EXPECT_EQ(message([](Request& r) { r.prompt[4] = 263; }),
            "token 263 at position 4 of the prompt is outside the vocabulary of 263");
  EXPECT_EQ(message([](Request& r) { r.prompt[0] = -1; }),
            "token -1 at position 0 of the prompt is outside the vocabulary of 263");
  EXPECT_EQ(message([](Request& r) { r.max_tokens = -5; }),
            "max_tokens is -5, allowed is -1 (no limit) or more");
  EXPECT_EQ(message([](Request& r) { r.stop = {"a", ""}; }), "stop string 1 is empty");
  EXPECT_EQ(message([](Request& r) { r.keep = 11; }),
            "keep is 11, allowed is -1 (the whole prompt) to 10, the prompt's length");
  EXPECT_EQ(message([](Request& r) { r.sampling.top_p = 2; }), "top_p is 2, allowed is [0, 1]; 1 is off");
  EXPECT_EQ(message([](Request& r) { r.sampling.logit_bias[263] = 1; }),
            "logit_bias names token 263, the vocabulary has 263 tokens");
  EXPECT_FALSE(engine.step());
}

TEST(EngineRequest, OptionsAreChecked) {
  const auto& model = test::shared_tiny_model();
  for (const auto& change : std::vector<std::function<void(EngineOptions&)>>{
           [](auto& o) { o.context = -5; }, [](auto& o) { o.batch = 0; }, [](auto& o) { o.sequences = 0; },
           [](auto& o) { o.context = INT64_MAX; }, [](auto& o) { o.k_dtype = DType::q4_0; }}) {
    EngineOptions options = test::engine_options({});
    change(options);
    EXPECT_EQ(refusal([&] { Engine engine(model, options); }).first, ErrorCode::invalid_argument);
  }
}

TEST(EngineMemory, ABudgetIsKept) {
  const auto& model = test::shared_tiny_model();
  EngineOptions options = test::engine_options({});
  options.context = 0;
  {
    Engine engine(model, options);
    EXPECT_EQ(engine.memory().context, 512);
    EXPECT_EQ(engine.memory().context_reason, "the model's trained context");
    // 2 layers * 2 heads * 16 elements * (key + value) * 2 bytes * 512 positions.
    EXPECT_EQ(engine.memory().kv, 2u * 2 * 16 * 2 * 2 * 512);
    EXPECT_EQ(engine.memory().weights, model->weight_bytes());
    options.memory_budget = engine.memory().weights + engine.memory().scratch + engine.memory().kv - 1;
  }
  Engine smaller(model, options);
  EXPECT_EQ(smaller.memory().context, 448);
  EXPECT_LE(smaller.memory().weights + smaller.memory().scratch + smaller.memory().kv, options.memory_budget);
  options.context = 512;
  EXPECT_EQ(refusal([&] { Engine engine(model, options); }).first, ErrorCode::out_of_memory);
  options.memory_budget = 1000;
  EXPECT_EQ(refusal([&] { Engine engine(model, options); }).first, ErrorCode::out_of_memory);
}

TEST(EngineMemory, DeviceBudgetsLimitTheContextToo) {
  EngineOptions options = test::engine_options({});
  options.context = 0;
  options.backends = {backends::make_reference_backend()};
  Engine roomy(test::shared_tiny_model(), options);
  const std::uint64_t used = options.backends[0]->devices()[0].used_bytes;
  options.backends = {backends::make_reference_backend(used - 1)};
  Engine tight(test::shared_tiny_model(), options);
  EXPECT_LT(tight.memory().context, 512);
  EXPECT_NE(tight.memory().context_reason.find("reference:0"), std::string::npos)
      << tight.memory().context_reason;
}

TEST(EngineMemory, OnePageTooFewForALoneSequenceIsAnErrorOfThatRequest) {
  EngineSettings s;
  s.pool_pages = 2;
  Engine engine = make_engine(s);
  const Result result = engine.generate(greedy(random_prompt(1, 100), 50));
  EXPECT_EQ(result.stop, StopReason::error);
  EXPECT_EQ(result.tokens.size(), 29u);  // 128 positions stored, one more drawn
  EXPECT_NE(result.error.find("all 2 cache pages are in use"), std::string::npos) << result.error;
  EXPECT_EQ(engine.generate(greedy(random_prompt(1, 100), 20)).stop, StopReason::max_tokens);
}

TEST(EngineMemory, SequencesOutliveTheEngine) {
  std::optional<memory::Sequence> kept;
  {
    Engine engine = make_engine();
    engine.generate(greedy(random_prompt(1, 100), 2), nullptr, &kept);
  }
  EXPECT_EQ(kept->length(), 101);
  test::TemporaryFolder folder;
  kept->save(folder / "state", 1);
  kept->truncate(3);
}

TEST(EngineMemory, UnclaimedSequencesMakeRoomForNewRequests) {
  EngineSettings s;
  s.pool_pages = 4;
  Engine engine = make_engine(s);
  const RequestId first = engine.submit(greedy(random_prompt(1, 200), 5));
  while (engine.step()) {
  }
  EXPECT_TRUE(engine.take_result(first));
  EXPECT_EQ(engine.generate(greedy(random_prompt(2, 200), 5)).stop, StopReason::max_tokens);
  EXPECT_FALSE(engine.take_sequence(first));
}

TEST(EngineCancel, QueuedAndRunningRequestsEnd) {
  Engine engine = make_engine();
  const RequestId running = engine.submit(greedy(random_prompt(1, 10), 100));
  int queued_tokens = 0;
  Request queued = greedy(random_prompt(2, 10), 100);
  queued.on_token = [&](const TokenEvent&) { ++queued_tokens; };
  const RequestId waiting = engine.submit(queued);
  for (int i = 0; i < 5; ++i) engine.step();
  engine.cancel(waiting);
  engine.cancel(running);
  engine.cancel(9999);
  EXPECT_FALSE(engine.step());
  EXPECT_EQ(engine.take_result(running)->stop, StopReason::cancelled);
  EXPECT_EQ(engine.take_result(waiting)->stop, StopReason::cancelled);
  EXPECT_EQ(queued_tokens, 0);
  EXPECT_FALSE(engine.take_result(running));
}

TEST(EngineCancel, FromInsideACallback) {
  Engine engine = make_engine();
  RequestId id = 0;
  int tokens = 0;
  Request request = greedy(random_prompt(1, 10), 100);
  request.on_token = [&](const TokenEvent&) {
    if (++tokens == 3) engine.cancel(id);
  };
  id = engine.submit(request);
  while (engine.step()) {
  }
  EXPECT_EQ(engine.take_result(id)->stop, StopReason::cancelled);
  EXPECT_EQ(tokens, 3);
}

TEST(EngineCallbacks, WhatTheyThrowComesOutAndEndsOnlyTheirRequest) {
  EngineSettings s;
  s.sequences = 2;
  Engine engine = make_engine(s);
  Request bad = greedy(random_prompt(1, 10), 10);
  bad.on_token = [](const TokenEvent&) { throw std::runtime_error("broken pipe"); };
  const RequestId failing = engine.submit(bad);
  const RequestId other = engine.submit(greedy(random_prompt(2, 10), 10));
  EXPECT_THROW(while (engine.step()){}, std::runtime_error);
  while (engine.step()) {
  }
  EXPECT_EQ(engine.take_result(failing)->error, "broken pipe");
  EXPECT_EQ(engine.take_result(other)->tokens.size(), 10u);
  EXPECT_THROW(engine.generate(bad), std::runtime_error);
  EXPECT_EQ(engine.generate(greedy(random_prompt(2, 10), 10)).tokens.size(), 10u);
}

TEST(EngineBase, ForeignSequencesAreRefusedAndStayWhole) {
  Engine engine = make_engine(), other = make_engine();
  std::optional<memory::Sequence> kept;
  other.generate(greedy(random_prompt(1, 30), 0), nullptr, &kept);
  EXPECT_EQ(refusal([&] { engine.submit(greedy(random_prompt(1, 30), 1), &*kept); }).first,
            ErrorCode::invalid_argument);
  EXPECT_EQ(refusal([&] { other.submit(greedy({}, 1), &*kept); }).first, ErrorCode::invalid_argument);
  EXPECT_EQ(kept->length(), 30);
}

TEST(EngineLogprobs, AreTheLogSoftmaxOfTheRawLogitsAtEveryTemperature) {
  std::vector<std::vector<TokenProbability>> first_event;
  for (const double temperature : {0.0, 0.7, 2.0}) {
    Engine engine = make_engine();
    Request request = greedy(random_prompt(5, 20), 6);
    request.sampling.temperature = temperature;
    request.sampling.top_k = 2;
    request.logprobs = 10;
    bool first = true;
    request.on_token = [&](const TokenEvent& event) {
      ASSERT_EQ(event.top.size(), 10u);
      double sum = 0;
      for (const float x : event.logits) sum += std::exp(static_cast<double>(x));
      const auto reference = [&](std::int32_t token) {
        return event.logits[static_cast<std::size_t>(token)] - std::log(sum);
      };
      for (std::size_t i = 0; i < event.top.size(); ++i) {
        EXPECT_NEAR(event.top[i].log_probability, reference(event.top[i].token), 1e-5);
        EXPECT_LE(event.top[i].log_probability, 0);
        if (i > 0) {
          EXPECT_LE(event.top[i].log_probability, event.top[i - 1].log_probability);
        }
      }
      EXPECT_NEAR(event.log_probability, reference(event.token), 1e-5);
      if (temperature == 0) {
        EXPECT_EQ(event.top[0].token, event.token);
      }
      if (first) first_event.push_back(event.top);
      first = false;
    };
    engine.generate(request);
  }
  ASSERT_EQ(first_event.size(), 3u);
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(first_event[0][i].token, first_event[1][i].token);
    EXPECT_EQ(first_event[0][i].log_probability, first_event[2][i].log_probability);
  }
}

TEST(EnginePromptLogits, OneCallAPositionWhateverTheChunks) {
  std::string whole;
  for (const std::int64_t batch : {512, 17}) {
    EngineSettings s;
    s.batch = batch;
    Engine engine = make_engine(s);
    Request request = greedy(random_prompt(1, 100), 0);
    request.want_prompt_logits = true;
    std::int64_t next = 0;
    std::string bytes;
    request.on_prompt_logits = [&](std::int64_t position, std::span<const float> logits) {
      EXPECT_EQ(position, next++);
      bytes.append(reinterpret_cast<const char*>(logits.data()), logits.size_bytes());
    };
    engine.generate(request);
    EXPECT_EQ(next, 100);
    if (whole.empty()) whole = bytes;
    EXPECT_TRUE(bytes == whole);
  }
}

TEST(EngineQueue, MoreRequestsThanSequencesAllGetTheirAnswers) {
  EngineSettings s;
  s.sequences = 3;
  s.pool_pages = 5;
  Engine engine = make_engine(s);
  std::vector<RequestId> ids;
  std::vector<std::vector<std::int32_t>> expected;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Request request = greedy(random_prompt(i % 6, 5 + 37 * (i % 5)), 10);
    Engine single = make_engine();
    expected.push_back(single.generate(request).tokens);
    ids.push_back(engine.submit(request));
  }
  while (engine.step()) {
  }
  for (std::size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(engine.take_result(ids[i])->tokens, expected[i]) << i;
}

TEST(StopReasons, HaveTheNamesThatProgramsPrint) {
  EXPECT_EQ(to_string(StopReason::end_of_generation), "eos");
  EXPECT_EQ(to_string(StopReason::stop_string), "stop");
  EXPECT_EQ(to_string(StopReason::max_tokens), "length");
  EXPECT_EQ(to_string(StopReason::context_full), "context");
  EXPECT_EQ(to_string(StopReason::cancelled), "cancelled");
}

}  // namespace
}  // namespace quipu::engine
