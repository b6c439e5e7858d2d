// Stages and the chain against values computed by hand, and the edges of every parameter.
#include "engine/sampling/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "core/philox.hpp"
#include "engine/sampling/softmax.hpp"
#include "engine/sampling/stages.hpp"

namespace quipu::engine {
namespace {

StageRoom kept_room;  // of all stages, from test to test

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

SamplingParams plain() {
  SamplingParams params;
  params.samplers.clear();
  params.temperature = 1;
  return params;
}

/// Logits whose softmax is `p` (sums to 1).
std::vector<float> logits_of(std::initializer_list<double> p) {
  std::vector<float> logits;
  for (const double x : p) logits.push_back(static_cast<float>(std::log(x)));
  return logits;
}

std::int32_t draw(const SamplingParams& params, std::span<const float> logits,
                  std::span<const std::int32_t> history = {}) {
  return Sampler(params).sample(logits, history);
}

/// Peaked pseudo-random logits, some of them equal.
std::vector<float> noise(std::uint64_t seed, std::size_t n) {
  std::vector<float> logits(n);
  for (std::size_t i = 0; i < n; ++i) {
    logits[i] = static_cast<float>(std::round(-std::log(1 - philox_uniform(seed, i)) * 64) / 32);
  }
  return logits;
}

std::vector<std::int32_t> history_of(std::size_t n) {
  std::vector<std::int32_t> history(n);
  std::iota(history.begin(), history.end(), 0);
  return history;
}

std::string refusal(const std::function<void(SamplingParams&)>& change) {
  SamplingParams params;
  change(params);
  try {
    params.validate();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.message();
  }
  return "accepted";
}

TEST(Sampler, ExponentialAgreesWithTheLibraryTo4e16) {
  for (double x = 0; x > -708; x -= 0.0437) {
    EXPECT_NEAR(exp_nonpositive(x) / std::exp(x), 1.0, 5e-16) << x;
  }
  EXPECT_EQ(exp_nonpositive(0), 1.0);
  EXPECT_EQ(exp_nonpositive(-709), 0.0);
  EXPECT_EQ(exp_nonpositive(-std::numeric_limits<double>::infinity()), 0.0);
}

TEST(Sampler, DrawInvertsTheCumulativeDistributionInOrderOfIds) {
  // p = 0.4 0.1 0.3 0.2: ids 0-3 end at 0.4, 0.5, 0.8, 1.
  const auto logits = logits_of({0.4, 0.1, 0.3, 0.2});
  std::array<int, 4> seen{};
  for (std::size_t position = 0; position < 200; ++position) {
    const double u = philox_uniform(99, position, 0);
    const std::int32_t expected = u < 0.4 ? 0 : u < 0.5 ? 1 : u < 0.8 ? 2 : 3;
    SamplingParams params = plain();
    params.seed = 99;
    const std::int32_t token = draw(params, logits, history_of(position));
    EXPECT_EQ(token, expected) << position;
    ++seen[static_cast<std::size_t>(token)];
  }
  EXPECT_GT(*std::min_element(seen.begin(), seen.end()), 5);
}

TEST(Sampler, DrawDependsOnSeedAndPositionOnly) {
  const auto logits = noise(1, 500);
  SamplingParams params = plain();
  params.seed = 7;
  Sampler fresh(params), used(params);
  for (std::size_t position = 0; position < 50; ++position) used.sample(logits, history_of(position));
  EXPECT_EQ(used.sample(logits, history_of(3)), fresh.sample(logits, history_of(3)));
}

TEST(Sampler, TopKOffAndLargerThanTheVocabularyDrawTheSame) {
  const auto logits = noise(2, 1000);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SamplingParams params;
    params.seed = seed;
    params.top_k = 0;
    SamplingParams huge = params, without = params;
    huge.top_k = 1000000000;
    std::erase(without.samplers, "top_k");
    const std::int32_t expected = draw(without, logits);
    EXPECT_EQ(draw(params, logits), expected);
    EXPECT_EQ(draw(huge, logits), expected);
  }
}

TEST(Sampler, KeepingOneEqualsGreedyTiesIncluded) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto logits = noise(seed, 400);
    const float max = *std::max_element(logits.begin(), logits.end());
    logits[300] = logits[17] = max + 1;  // two best: the lower id wins
    const auto with = [&](const std::function<void(SamplingParams&)>& change) {
      SamplingParams params;
      params.seed = seed;
      change(params);
      return draw(params, logits);
    };
    EXPECT_EQ(with([](SamplingParams& p) { p.temperature = 0; }), 17);
    EXPECT_EQ(with([](SamplingParams& p) { p.top_k = 1; }), 17);
    EXPECT_EQ(with([](SamplingParams& p) { p.top_p = 0; }), 17);
    EXPECT_EQ(with([](SamplingParams& p) { p.min_p = 1; }), 17);
    EXPECT_EQ(with([](SamplingParams& p) {
                p.min_p = 1;
                p.samplers = {"min_p", "temperature"};
              }),
              17);
  }
}

TEST(Sampler, TemperatureZeroIsGreedyWhateverElseIsSet) {
  const auto logits = logits_of({0.1, 0.6, 0.3});
  SamplingParams params;
  params.temperature = 0;
  params.typical_p = 0.1;  // would keep token 2 alone
  params.xtc_probability = 1;
  params.dynatemp_range = 3;
  EXPECT_EQ(draw(params, logits), 1);
  params.samplers = {};
  EXPECT_EQ(draw(params, logits), 1);
  // Penalties and bias still count: 0.6 -> ln 0.6 - 2 is below ln 0.3.
  params.samplers = {"penalties"};
  params.presence_penalty = 2;
  EXPECT_EQ(draw(params, logits, std::vector<std::int32_t>{1}), 2);
  params.logit_bias[0] = 5;
  EXPECT_EQ(draw(params, logits, std::vector<std::int32_t>{1}), 0);
}

TEST(Sampler, ExtremeTemperaturesAreFine) {
  const std::vector<float> logits{1, 3, 2.5f, -4};
  SamplingParams params = plain();
  params.samplers = {"temperature"};
  for (const double cold : {1e-9, 1e-300, std::numeric_limits<double>::denorm_min()}) {
    params.temperature = cold;
    EXPECT_EQ(draw(params, logits), 1) << cold;
  }
  // Nearly uniform: each quarter of the unit interval gives its own token.
  params.temperature = 1e9;
  for (std::size_t position = 0; position < 40; ++position) {
    EXPECT_EQ(draw(params, logits, history_of(position)),
              static_cast<std::int32_t>(philox_uniform(0, position) * 4));
  }
}

TEST(Sampler, EmptyChainSamplesFromThePlainDistribution) {
  const auto logits = logits_of({0.25, 0.25, 0.25, 0.25});
  SamplingParams params;
  params.samplers = {};
  params.top_k = 1;
  params.min_p = 1;
  for (std::size_t position = 0; position < 40; ++position) {
    EXPECT_EQ(draw(params, logits, history_of(position)),
              static_cast<std::int32_t>(philox_uniform(0, position) * 4));
  }
}

TEST(Sampler, OrderOfTheStagesCounts) {
  // p = 0.5 0.3 0.2. At temperature 4 first: weights 0.5^.25 = .841, 0.3^.25 = .740, 0.2^.25 = .669 -> p =
  // .374, .329, .297: top_p 0.7 keeps two (.703). The other order keeps two as well at 0.7 (.8), but one at
  // 0.45.
  const auto logits = logits_of({0.5, 0.3, 0.2});
  Candidates before, after;
  SamplingParams params = plain();
  params.temperature = 4;
  params.top_p = 0.45;
  ASSERT_TRUE(before.assign(logits) && after.assign(logits));
  apply_top_p(before, params, {{}, 0, kept_room});
  apply_temperature(before, params, {{}, 0, kept_room});
  apply_temperature(after, params, {{}, 0, kept_room});
  apply_top_p(after, params, {{}, 0, kept_room});
  EXPECT_EQ(before.size(), 1u);
  EXPECT_EQ(after.size(), 2u);
}

TEST(Sampler, PenaltiesByHand) {
  // Window of the last 4 tokens: 2 2 0 5 (5 is outside the vocabulary). repeat 2, frequency 0.5, presence
  // 0.25: 0: 3/2 - 0.75 = 0.75; 2: -1*2 - 1.25 = -3.25; 1 stands before the window.
  SamplingParams params = plain();
  params.repeat_penalty = 2;
  params.frequency_penalty = 0.5;
  params.presence_penalty = 0.25;
  params.repeat_last_n = 4;
  const std::vector<std::int32_t> history{1, 2, 2, 0, 5};
  const std::vector<float> logits{3, 1, -1, 0};
  Candidates c;
  ASSERT_TRUE(c.assign(logits));
  apply_penalties(c, params, {history, history.size(), kept_room});
  EXPECT_FLOAT_EQ(c.find(0)->logit, 0.75f);
  EXPECT_FLOAT_EQ(c.find(1)->logit, 1.0f);
  EXPECT_FLOAT_EQ(c.find(2)->logit, -3.25f);
  EXPECT_FLOAT_EQ(c.find(3)->logit, 0.0f);
  // -1: the whole context, so 1 counts too: 1/2 - 0.75.
  params.repeat_last_n = -1;
  ASSERT_TRUE(c.assign(logits));
  apply_penalties(c, params, {history, history.size(), kept_room});
  EXPECT_FLOAT_EQ(c.find(1)->logit, -0.25f);
  // 0: off.
  params.repeat_last_n = 0;
  ASSERT_TRUE(c.assign(logits));
  apply_penalties(c, params, {history, history.size(), kept_room});
  EXPECT_FLOAT_EQ(c.find(0)->logit, 3.0f);
}

TEST(Sampler, DryByHand) {
  // History 7 8 9 1 7 8: "7 8" (length 2) was followed by 9. allowed 1: 9 loses 1 * 2^(2-1) = 2. With allowed
  // 0 every earlier token is a follower of an empty repeat: 0.5 * 2^2 = 2 for 9; 8 and 1 follow 7 and 9,
  // which do not end the history: 2^0 * 0.5 = 0.5.
  std::vector<float> logits(10, 0.0f);
  SamplingParams params = plain();
  params.dry_multiplier = 1;
  params.dry_base = 2;
  params.dry_allowed_length = 1;
  const std::vector<std::int32_t> history{7, 8, 9, 1, 7, 8};
  Candidates c;
  ASSERT_TRUE(c.assign(logits));
  apply_dry(c, params, {history, history.size(), kept_room});
  for (std::int32_t id = 0; id < 10; ++id) EXPECT_FLOAT_EQ(c.find(id)->logit, id == 9 ? -2.0f : 0.0f) << id;
  params.dry_allowed_length = 0;
  params.dry_multiplier = 0.5;
  ASSERT_TRUE(c.assign(logits));
  apply_dry(c, params, {history, history.size(), kept_room});
  EXPECT_FLOAT_EQ(c.find(9)->logit, -2.0f);
  EXPECT_FLOAT_EQ(c.find(1)->logit, -0.5f);
  EXPECT_FLOAT_EQ(c.find(3)->logit, 0.0f);
  // A breaker of two tokens (1 7) leaves one token of the repeat: 2^(1-1) = 1 with allowed 1.
  params.dry_allowed_length = 1;
  params.dry_multiplier = 1;
  params.dry_sequence_breakers = {{1, 7}};
  ASSERT_TRUE(c.assign(logits));
  apply_dry(c, params, {history, history.size(), kept_room});
  EXPECT_FLOAT_EQ(c.find(9)->logit, -1.0f);
  // A window of 3 (1 7 8) holds no repeat.
  params.dry_penalty_last_n = 3;
  ASSERT_TRUE(c.assign(logits));
  apply_dry(c, params, {history, history.size(), kept_room});
  EXPECT_FLOAT_EQ(c.find(9)->logit, 0.0f);
}

TEST(Sampler, DryIsLinearInTheHistoryAndNeverForbids) {
  const std::vector<std::int32_t> history(200000, 3);
  SamplingParams params;
  params.dry_multiplier = 5;
  params.temperature = 0;
  // 5 * 1.75^199998 overflows; token 3 is still the only one with a number.
  EXPECT_EQ(draw(params, std::vector<float>{-kInf, -kInf, -kInf, 0.0f}, history), 3);
}

TEST(Sampler, XtcFollowsItsOwnDraw) {
  // p = 0.5 0.3 0.15 0.05, threshold 0.1: tokens 0 and 1 go, 2 (the least of those above) stays.
  const auto logits = logits_of({0.5, 0.3, 0.15, 0.05});
  SamplingParams params = plain();
  params.seed = 5;
  params.xtc_probability = 0.5;
  params.xtc_threshold = 0.1;
  int applied = 0;
  for (std::uint64_t position = 0; position < 60; ++position) {
    Candidates c;
    ASSERT_TRUE(c.assign(logits));
    apply_xtc(c, params, {{}, position, kept_room});
    const bool expected = philox_uniform(5, position, 1) < 0.5;
    EXPECT_EQ(c.size(), expected ? 2u : 4u) << position;
    applied += expected;
  }
  EXPECT_GT(applied, 15);
  EXPECT_LT(applied, 45);
}

TEST(Sampler, MirostatMovesMuByTheSurprise) {
  // tau 2, mu starts at 4 bits: p >= 1/16 stays. p = 0.5 0.25 0.2 0.05 -> three stay, of 0.95. Token 1 has
  // surprise -log2(0.25/0.95) = 1.926; mu = 4 - 0.1 (1.926 - 2) = 4.0074.
  const std::vector<float> logits = logits_of({0.5, 0.25, 0.2, 0.05}), equal{0, 0, 0};
  Candidates c;
  ASSERT_TRUE(c.assign(logits));
  Mirostat mirostat(2, 0.1);
  mirostat.truncate(c);
  EXPECT_EQ(c.size(), 3u);
  mirostat.observe(c, 1);
  EXPECT_NEAR(mirostat.mu(), 4 - 0.1 * (std::log2(0.95 / 0.25) - 2), 1e-6);
  // The best token stays however low mu is.
  Mirostat strict(0, 0.1);
  ASSERT_TRUE(c.assign(equal));
  strict.truncate(c);
  ASSERT_EQ(c.size(), 1u);
  EXPECT_EQ(c.items()[0].token, 0);
}

TEST(Sampler, MirostatRunsInTheChain) {
  SamplingParams params;
  params.mirostat = 2;
  params.mirostat_tau = 0;  // only the best token is below zero bits
  const auto logits = noise(3, 100);
  EXPECT_EQ(draw(params, logits), std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST(Sampler, BiasForbidsAndForces) {
  const auto logits = logits_of({0.9, 0.05, 0.05});
  SamplingParams params;
  params.temperature = 0;
  params.logit_bias[0] = -kInf;
  EXPECT_EQ(draw(params, logits), 1);
  params.logit_bias[2] = 1;
  EXPECT_EQ(draw(params, logits), 2);
  params.logit_bias = {{0, -kInf}, {1, -kInf}, {2, -kInf}};
  EXPECT_THROW(draw(params, logits), Error);
  params.logit_bias = {{3, 1.0f}};
  EXPECT_THROW(draw(params, logits), Error);
}

TEST(Sampler, HostileLogits) {
  SamplingParams params;
  const float nan = std::nanf("");
  EXPECT_EQ(draw(params, std::vector<float>{nan, nan, 1.0f, nan}), 2);
  EXPECT_EQ(draw(params, std::vector<float>{-kInf, -kInf, -1e30f}), 2);
  EXPECT_EQ(draw(params, std::vector<float>{0, kInf, 5}), 1);
  EXPECT_THROW(draw(params, std::vector<float>{nan, -kInf}), Error);
  EXPECT_THROW(draw(params, std::vector<float>{}), Error);
}

TEST(Sampler, NoStageEverLeavesNothing) {
  const std::vector<std::vector<float>> inputs{{0},
                                               {0, 0, 0, 0},
                                               {1, -kInf, -kInf, 1},
                                               {3e38f, -3e38f, 3e38f, 0},
                                               noise(11, 700),
                                               std::vector<float>(700, 2)};
  for (const auto& logits : inputs) {
    for (const double edge : {0.0, 1e-12, 0.3, 1.0}) {
      SamplingParams params;
      params.top_p = edge;
      params.min_p = edge;
      params.typical_p = std::max(edge, 1e-12);
      params.top_n_sigma = edge;
      params.xtc_probability = 1;
      params.xtc_threshold = edge;
      params.top_k = static_cast<std::int64_t>(edge);
      params.repeat_penalty = 1e300;
      params.presence_penalty = 1e300;
      params.frequency_penalty = -1e300;
      params.dry_multiplier = 1e300;
      params.temperature = edge + 1e-9;
      params.dynatemp_range = edge;
      std::vector<std::string> order = params.samplers;
      std::sort(order.begin(), order.end());
      for (int turn = 0; turn < 200; ++turn) {
        params.samplers = order;
        params.seed = static_cast<std::uint64_t>(turn);
        const std::int32_t token = draw(params, logits, std::vector<std::int32_t>{0, 0, 0, 1, 0, 0});
        ASSERT_GE(token, 0);
        ASSERT_LT(token, static_cast<std::int32_t>(logits.size()));
        ASSERT_GT(logits[static_cast<std::size_t>(token)], -kInf);
        std::next_permutation(order.begin(), order.end());
      }
    }
  }
}

TEST(Sampler, RefusalsNameParameterValueAndRange) {
  EXPECT_EQ(refusal([](auto& p) { p.temperature = -1; }),
            "temperature is -1, allowed is [0, inf); 0 is greedy");
  EXPECT_EQ(refusal([](auto& p) { p.temperature = kNan; }),
            "temperature is nan, allowed is [0, inf); 0 is greedy");
  EXPECT_EQ(refusal([](auto& p) { p.temperature = kInf; }),
            "temperature is inf, allowed is [0, inf); 0 is greedy");
  EXPECT_EQ(refusal([](auto& p) { p.temperature = 1e9; }), "accepted");
  EXPECT_EQ(refusal([](auto& p) { p.min_p = 1.5; }), "min_p is 1.5, allowed is [0, 1]; 0 is off");
  EXPECT_EQ(refusal([](auto& p) { p.top_p = -0.1; }), "top_p is -0.1, allowed is [0, 1]; 1 is off");
  EXPECT_EQ(refusal([](auto& p) { p.top_k = -1; }), "top_k is -1, allowed is 0 or more; 0 is off");
  EXPECT_EQ(refusal([](auto& p) { p.typical_p = 0; }), "typical_p is 0, allowed is (0, 1]; 1 is off");
  EXPECT_EQ(refusal([](auto& p) { p.repeat_penalty = 0; }),
            "repeat_penalty is 0, allowed is (0, inf); 1 is off");
  EXPECT_EQ(refusal([](auto& p) { p.repeat_last_n = -1; }), "accepted");
  EXPECT_EQ(refusal([](auto& p) { p.repeat_last_n = -2; }),
            "repeat_last_n is -2, allowed is -1 or more; -1 is the whole context, 0 is off");
  EXPECT_EQ(refusal([](auto& p) { p.mirostat = 1; }), "mirostat is 1, allowed is 0 (off) or 2");
  EXPECT_EQ(refusal([](auto& p) { p.logit_bias[4] = kInf; }),
            "logit_bias of token 4 is inf, allowed is [-inf, inf)");
  EXPECT_EQ(
      refusal([](auto& p) {
        p.samplers = {"top_k", "warmth"};
      }),
      "samplers holds \"warmth\", known are penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, "
      "temperature");
  for (const auto& change : std::vector<std::function<void(SamplingParams&)>>{
           [](auto& p) { p.dynatemp_range = -1; }, [](auto& p) { p.dynatemp_exponent = kNan; },
           [](auto& p) { p.xtc_probability = 2; }, [](auto& p) { p.xtc_threshold = -1; },
           [](auto& p) { p.dry_multiplier = -1; }, [](auto& p) { p.dry_base = 0.5; },
           [](auto& p) { p.dry_allowed_length = -1; }, [](auto& p) { p.dry_penalty_last_n = -2; },
           [](auto& p) { p.dry_sequence_breakers = {{}}; }, [](auto& p) { p.presence_penalty = kNan; },
           [](auto& p) { p.frequency_penalty = kInf; }, [](auto& p) { p.mirostat_tau = -1; },
           [](auto& p) { p.mirostat_eta = kNan; }, [](auto& p) { p.min_keep = -1; },
           [](auto& p) { p.logit_bias[-1] = 0; }, [](auto& p) { p.top_n_sigma = kNan; }}) {
    EXPECT_NE(refusal(change), "accepted");
  }
}

TEST(Sampler, NamesOfLlamaCppAreUnderstood) {
  // common/sampling.cpp of llama.cpp lists these spellings and letters.
  for (const char* name : {"penalties", "e",     "dry", "d",     "top_n_sigma", "top-n-sigma", "s",
                           "top_k",     "top-k", "k",   "typ_p", "typical-p",   "typical_p",   "typical",
                           "typ-p",     "typ",   "y",   "top_p", "top-p",       "nucleus",     "p",
                           "min_p",     "min-p", "m",   "xtc",   "x",           "temperature", "temp",
                           "t"}) {
    EXPECT_NE(find_stage(name), nullptr) << name;
  }
  EXPECT_EQ(find_stage("typical"), find_stage("y"));
  EXPECT_EQ(find_stage(""), nullptr);
  EXPECT_EQ(SamplingParams::sampler_names().size(), 9u);
  EXPECT_EQ(std::vector<std::string>(SamplingParams::sampler_names().begin(),
                                     SamplingParams::sampler_names().end()),
            SamplingParams().samplers);
}

TEST(LogProbabilities, AreTheLogSoftmaxOfRawLogitsSorted) {
  // exp: 1 2 3 4 of 10.
  const std::vector<float> logits{0, std::log(2.0f), std::log(3.0f), std::log(4.0f)};
  const auto top = top_log_probabilities(logits, 3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].token, 3);
  EXPECT_NEAR(top[0].log_probability, std::log(0.4), 1e-6);
  EXPECT_EQ(top[1].token, 2);
  EXPECT_NEAR(top[1].log_probability, std::log(0.3), 1e-6);
  EXPECT_EQ(top[2].token, 1);
  EXPECT_NEAR(log_probability(logits, 0), std::log(0.1), 1e-6);
  EXPECT_EQ(top_log_probabilities(logits, 99).size(), 4u);
  EXPECT_TRUE(top_log_probabilities(logits, 0).empty());
  EXPECT_THROW(log_probability(logits, 4), Error);
}

TEST(LogProbabilities, AreStableAndNeverAboveZero) {
  const std::vector<float> logits{-1e30f, 1e4f, 1e4f, -kInf, std::nanf("")};
  const auto top = top_log_probabilities(logits, 5);
  ASSERT_EQ(top.size(), 5u);
  EXPECT_EQ(top[0].token, 1);  // equal logits: lower id first
  EXPECT_NEAR(top[0].log_probability, std::log(0.5), 1e-6);
  EXPECT_EQ(top[1].token, 2);
  EXPECT_EQ(top[2].token, 0);
  EXPECT_EQ(top[3].log_probability, -kInf);
  EXPECT_EQ(top_log_probabilities(std::vector<float>{7}, 1)[0].log_probability, 0.0f);
}

}  // namespace
}  // namespace quipu::engine
