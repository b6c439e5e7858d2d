// Many texts in one piece of memory, against a vector of strings.
#include "core/text_list.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quipu {
namespace {

/// Empty, short and long, with every byte.
std::vector<std::string> some_texts() {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < 1000; ++i) {
    texts.emplace_back(i * i % 41, static_cast<char>(i));
    if (!texts.back().empty()) texts.back().front() = '\0';
  }
  return texts;
}

TEST(TextList, GivesBackWhatItWasGiven) {
  const std::vector<std::string> texts = some_texts();
  TextList list(texts);
  ASSERT_EQ(list.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(list[i], texts[i]);
  EXPECT_EQ(list.strings(), texts);
  list.push_back("");
  list.push_back(std::string_view("a\0b", 3));
  ASSERT_EQ(list.size(), 1002U);
  EXPECT_EQ(list[1000], "");
  EXPECT_EQ(list[1001], std::string_view("a\0b", 3));
}

TEST(TextList, BeginsEmpty) {
  const TextList list;
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.size(), 0U);
  EXPECT_EQ(list.begin(), list.end());
  EXPECT_EQ(list.strings(), std::vector<std::string>());
  EXPECT_FALSE(TextList(std::vector<std::string>{""}).empty());
}

TEST(TextList, HoldsLessThanFourGibibytes) {
  constexpr std::size_t kMost = 0xffffffff;
  TextList list;
  EXPECT_TRUE(list.fits(kMost));
  EXPECT_FALSE(list.fits(kMost + 1));
  list.push_back("abc");
  EXPECT_TRUE(list.fits(kMost - 3));
  EXPECT_FALSE(list.fits(kMost - 2));
}

TEST(TextList, IsEmptyWhenMovedFrom) {
  TextList from(some_texts());
  const TextList to = std::move(from);
  EXPECT_EQ(to, TextList(some_texts()));
  EXPECT_EQ(from.size(), 0U);  // NOLINT(bugprone-use-after-move)
}

TEST(TextList, IsEqualWhereItsTextsAre) {
  using Texts = std::vector<std::string>;
  TextList grown;
  for (const std::string& text : some_texts()) grown.push_back(text);
  EXPECT_EQ(grown, TextList(some_texts()));
  EXPECT_NE(TextList(Texts{"ab", "c"}), TextList(Texts{"a", "bc"}));
  EXPECT_NE(TextList(Texts{"a"}), TextList(Texts{"a", ""}));
}

}  // namespace
}  // namespace quipu
