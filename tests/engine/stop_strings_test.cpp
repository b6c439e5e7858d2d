// Stop strings in streams cut in every way.
#include "engine/stop_strings.hpp"

#include <gtest/gtest.h>

#include <utility>

namespace quipu::engine {
namespace {

struct Outcome {
  std::string text;
  bool matched;
  bool operator==(const Outcome&) const = default;
};

Outcome feed(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  std::string text;
  for (const std::string& piece : pieces) text += matcher.push(piece);
  if (!matcher.matched()) text += matcher.finish();
  EXPECT_EQ(matcher.text_bytes(), text.size());
  return {text, matcher.matched()};
}

/// All ways to cut a text into pieces.
std::vector<std::vector<std::string>> cuts(const std::string& text) {
  std::vector<std::vector<std::string>> all;
  for (unsigned mask = 0; mask < 1u << (text.size() - 1); ++mask) {
    std::vector<std::string> pieces{""};
    for (std::size_t i = 0; i < text.size(); ++i) {
      pieces.back() += text[i];
      if (i + 1 < text.size() && (mask >> i & 1)) pieces.emplace_back();
    }
    all.push_back(std::move(pieces));
  }
  return all;
}

TEST(StopStrings, OutcomeDependsOnTheTextAndNotOnItsPieces) {
  const struct {
    std::vector<std::string> stops;
    std::string text, expected;
    bool matched;
  } cases[] = {
      {{"O P Q"}, " N O P Q R", " N ", true},
      {{"\nUser:"}, "ok\nUser: hi", "ok", true},
      {{"\nUser:"}, "ok\nUser is", "ok\nUser is", false},
      {{"\n"}, "?\nAlice", "?", true},
      {{"aab"}, "aaaab", "aa", true},          // restarts inside a failed match
      {{"abcabd"}, "abcabcabd", "abc", true},  // falls back to a border
      {{"abc", "c"}, "abcd", "", true},        // both end at c: the longer one
      {{"bcd", "c"}, "abcd", "ab", true},      // c is complete first
      {{"N O", "O P Q"}, "M N O P Q", "M ", true},
      {{"O P Q", "N O"}, "M N O P Q", "M ", true},
      {{"abab"}, "ababa", "", true},
      {{"xyz"}, "xyxyxy", "xyxyxy", false},
      {{}, "anything", "anything", false},
  };
  for (const auto& c : cases) {
    for (const auto& pieces : cuts(c.text)) {
      EXPECT_EQ(feed(c.stops, pieces), (Outcome{c.expected, c.matched})) << c.text;
    }
  }
}

TEST(StopStrings, NothingIsHeldLongerThanNeeded) {
  StopMatcher matcher({"\nUser:", "END"});
  EXPECT_EQ(matcher.push("ok\n"), "ok");
  EXPECT_EQ(matcher.push("Us"), "");
  EXPECT_EQ(matcher.push("age E"), "\nUsage ");
  EXPECT_EQ(matcher.push("N"), "");
  EXPECT_EQ(matcher.push("TRY"), "ENTRY");
  EXPECT_EQ(matcher.push("\nUser:x"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.push("more"), "");
}

TEST(StopStrings, WholeCharactersOnly) {
  // 停 is E5 81 9C; 偀 is E5 81 80 and shares two bytes with it.
  StopMatcher matcher({"停"});
  EXPECT_EQ(matcher.push("好偀"), "好偀");
  EXPECT_EQ(matcher.push("不停了"), "不");
  EXPECT_TRUE(matcher.matched());
}

TEST(StopStrings, LongHostileStopsTakeLinearTime) {
  const std::string stop = std::string(200000, 'a') + "b";
  StopMatcher matcher({stop});
  std::size_t released = 0;
  for (int i = 0; i < 50; ++i) released += matcher.push(std::string(100000, 'a') + "c").size();
  EXPECT_EQ(released, 50u * 100001);
}

TEST(StopMatcher, SaysWhichStringItFound) {
  StopMatcher m({"bc", "abc", "x"});
  EXPECT_EQ(m.found(), "");
  m.push("..ab");
  m.push("c");
  EXPECT_EQ(m.found(), "abc") << "of those that end together the longest";
}

}  // namespace
}  // namespace quipu::engine
