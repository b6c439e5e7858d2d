// Tables of the vocabulary, against the containers of the standard library.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/text_list.hpp"
#include "text/merges.hpp"
#include "text/token_index.hpp"

namespace quipu {
namespace {

using text::MergeTable;
using text::TextIndex;

/// Texts of 0 to 40 bytes of any value, one in four of them there before.
std::vector<std::string> random_texts(std::size_t count) {
  std::mt19937 random(7);
  std::vector<std::string> texts;
  while (texts.size() < count) {
    if (!texts.empty() && random() % 4 == 0) {
      texts.push_back(texts[random() % texts.size()]);
      continue;
    }
    std::string text(random() % 41, '\0');
    for (char& c : text) c = static_cast<char>(random() % 256);
    texts.push_back(text);
  }
  return texts;
}

/// At the sizes where three of four slots are taken, below and above.
TEST(TextIndex, FindsTheFirstOfEqualTexts) {
  for (const std::size_t count : {0U, 1U, 11U, 12U, 13U, 768U, 769U, 6144U, 6145U}) {
    const std::vector<std::string> texts = random_texts(count);
    const TextList list(texts);
    std::map<std::string, std::int32_t> first;
    for (std::size_t i = 0; i < count; ++i) first.try_emplace(texts[i], static_cast<std::int32_t>(i));
    const TextIndex whole(list);
    TextIndex grown;
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(grown.insert(list, static_cast<std::uint32_t>(i)), first.at(texts[i])) << count;
    for (const std::string& text : texts) {
      ASSERT_EQ(whole.find(list, text), first.at(text)) << count;
      ASSERT_EQ(grown.find(list, text), first.at(text)) << count;
      const std::string other = text + "!";
      ASSERT_EQ(whole.find(list, other), first.contains(other) ? first.at(other) : -1) << count;
    }
  }
}

TEST(MergeTable, HoldsAsManyAsItWasMadeFor) {
  std::mt19937 random(8);
  for (const std::size_t count : {0U, 1U, 2U, 3U, 1000U}) {
    MergeTable table(count);
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> ranks;
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto left = static_cast<std::uint32_t>(random() % 40),
                 right = static_cast<std::uint32_t>(random() % 40);
      table.add(left, right, {i, i + 100});
      ranks.try_emplace({left, right}, i);
    }
    for (std::uint32_t left = 0; left < 41; ++left)
      for (std::uint32_t right = 0; right < 41; ++right) {
        const MergeTable::Merge* found = table.find(left, right);
        const auto expected = ranks.find({left, right});
        ASSERT_EQ(found != nullptr, expected != ranks.end()) << left << " " << right;
        if (found == nullptr) continue;
        EXPECT_EQ(found->rank, expected->second);
        EXPECT_EQ(found->merged, expected->second + 100);
      }
  }
}

}  // namespace
}  // namespace quipu
