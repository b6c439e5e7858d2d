// The list of candidates against sorted copies of it: read from the logits as they lie, or as a list.
#include "engine/sampling/candidates.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "engine/sampling/softmax.hpp"

namespace quipu::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Logits as a model may give them: ties, both infinities, NaN, and no whole number of blocks.
std::vector<float> odd_logits() {
  std::mt19937 random(22);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> logits(5003);
  for (float& x : logits) x = normal(random);
  for (std::size_t i = 0; i < logits.size(); i += 7) logits[i] = std::round(logits[i]);
  for (std::size_t i = 100; i < logits.size(); i += 61) logits[i] = -kInfinity;
  for (std::size_t i = 50; i < logits.size(); i += 97) logits[i] = std::nanf("");
  return logits;
}
std::vector<Candidate> listed(const std::vector<float>& logits) {
  std::vector<Candidate> all;
  for (std::size_t i = 0; i < logits.size(); ++i)
    all.push_back({static_cast<std::int32_t>(i), usable_logit(logits[i])});
  return all;
}
std::vector<std::int32_t> tokens_of(std::span<const Candidate> candidates) {
  std::vector<std::int32_t> tokens;
  for (const Candidate& c : candidates) tokens.push_back(c.token);
  return tokens;
}

TEST(Candidates, PartialSelectionEqualsAFullSort) {
  std::vector<float> logits = odd_logits();
  logits.resize(5000);
  const std::vector<Candidate> all = listed(logits);
  std::vector<Candidate> sorted = all, chosen;
  std::stable_sort(sorted.begin(), sorted.end(), [](auto& a, auto& b) { return a.logit > b.logit; });
  for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{40}, std::size_t{700},
                                  std::size_t{4999}, std::size_t{5000}, std::size_t{9000}}) {
    select_best(all, count, chosen);
    ASSERT_EQ(chosen.size(), std::min(count, all.size()));
    for (std::size_t i = 0; i < chosen.size(); ++i) ASSERT_EQ(chosen[i].token, sorted[i].token) << count;
  }
}

TEST(Candidates, TheBestOfAVocabularyAreThoseOfItsList) {
  const std::vector<float> odd = odd_logits();
  std::vector<float> with_infinities = odd;
  with_infinities[4000] = with_infinities[77] = kInfinity;
  with_infinities[30] = std::numeric_limits<float>::max();  // as good as infinity, and earlier
  std::vector<float> only_one(5003, std::nanf(""));
  only_one[5002] = -3;
  for (const std::vector<float>* logits : {&odd, &std::as_const(with_infinities), &std::as_const(only_one)}) {
    std::vector<Candidate> sorted = listed(*logits);
    std::stable_sort(sorted.begin(), sorted.end(), [](auto& a, auto& b) { return a.logit > b.logit; });
    Candidates c;
    ASSERT_TRUE(c.assign(*logits));
    EXPECT_EQ(c.best().token, sorted[0].token);
    EXPECT_EQ(c.best().logit, sorted[0].logit);
    EXPECT_EQ(c.max_logit(), sorted[0].logit);
    EXPECT_EQ(c.size(), logits->size());
    for (const std::size_t count : {std::size_t{1}, std::size_t{40}, std::size_t{900}, std::size_t{5002}}) {
      ASSERT_TRUE(c.assign(*logits));
      c.keep_best(count);
      EXPECT_EQ(tokens_of(c.items()), tokens_of(std::span(sorted).first(count))) << count;
    }
  }
  const std::vector<float> forbidden(40, -kInfinity), nothing(40, std::nanf(""));
  Candidates c;
  EXPECT_FALSE(c.assign(forbidden));
  EXPECT_FALSE(c.assign(nothing));
}

TEST(Candidates, AMaskKeepsTheSameTokensOfAVocabularyAndOfItsList) {
  const std::vector<float> logits = odd_logits();
  std::vector<std::uint64_t> mask(logits.size() / 64 + 3);  // longer than the vocabulary
  std::mt19937_64 random(3);
  for (std::uint64_t& word : mask) word = random() & random();
  std::vector<std::int32_t> expected;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if ((mask[i / 64] >> (i % 64) & 1) != 0) expected.push_back(static_cast<std::int32_t>(i));
  Candidates of_view, of_list;
  ASSERT_TRUE(of_view.assign(logits));
  ASSERT_TRUE(of_list.assign(logits));
  of_list.sort_by_logit();
  of_list.sort_by_token();
  EXPECT_TRUE(of_view.keep_allowed(mask));
  EXPECT_TRUE(of_list.keep_allowed(mask));
  EXPECT_EQ(tokens_of(of_view.items()), expected);
  EXPECT_EQ(tokens_of(of_list.items()), expected);
  // What it leaves has no probability, or nothing is left.
  for (const std::size_t token : {std::size_t{100}, std::size_t{50}}) {
    std::vector<std::uint64_t> one(2);
    one[token / 64] = std::uint64_t{1} << (token % 64);
    ASSERT_TRUE(of_view.assign(logits));
    EXPECT_FALSE(of_view.keep_allowed(one)) << token;
  }
  ASSERT_TRUE(of_view.assign(logits));
  EXPECT_FALSE(of_view.keep_allowed({}));
}

TEST(Candidates, ExponentialsAreTheSameForAnyNumberOfLanesAndFromAnyForm) {
  const std::vector<float> logits = odd_logits();
  const std::vector<Candidate> all = listed(logits);
  std::vector<double> of_list(logits.size()), of_logits(logits.size());
  exp_differences(all, 9.5, of_list);
  exp_differences(logits, 9.5, of_logits);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double x = static_cast<double>(all[i].logit) - 9.5, two = exp_nonpositive(x);
    auto four = Lanes<4>::Doubles{} + x;
    auto eight = Lanes<8>::Doubles{} + x;
    exp_nonpositive<4>(four);
    exp_nonpositive<8>(eight);
    EXPECT_EQ(two, four[1]) << x;
    EXPECT_EQ(two, eight[7]) << x;
    EXPECT_EQ(two, of_list[i]) << x;
    EXPECT_EQ(two, of_logits[i]) << x;
  }
}

}  // namespace
}  // namespace quipu::engine
