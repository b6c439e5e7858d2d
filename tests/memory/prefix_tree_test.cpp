#include "memory/prefix_tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "page_fixture.hpp"

namespace quipu::memory {
namespace {

using test::extend;
using test::make_pool;
using test::numbers;
using test::wrong_rows;

TEST(PrefixTree, FindsFullPagesOfACommonPrefix) {
  const auto pool = make_pool();
  PrefixTree tree(pool);
  {
    Sequence first(pool);
    ASSERT_TRUE(extend(first, numbers(0, 200)));
    tree.insert(first);
    tree.insert(first);  // again: nothing new
  }
  EXPECT_EQ(tree.pages(), 3u);
  EXPECT_EQ(pool->free_pages(), 5u);
  // 150 common tokens: two full pages.
  std::vector<std::int32_t> tokens = numbers(0, 150);
  tokens.resize(300, 7);
  Sequence second(pool);
  EXPECT_EQ(tree.extend(second, tokens), 128);
  EXPECT_EQ(second.length(), 128);
  EXPECT_EQ(wrong_rows(second), 0);
  EXPECT_EQ(tree.extend(second, tokens), 0);
  // Writing on leaves the shared pages alone.
  ASSERT_TRUE(extend(second, numbers(500, 30)));
  Sequence third(pool);
  EXPECT_EQ(tree.extend(third, numbers(0, 192)), 192);
  EXPECT_EQ(wrong_rows(third), 0);
  EXPECT_EQ(wrong_rows(second), 0);
  // The same tokens at another place are another page.
  Sequence shifted(pool);
  EXPECT_EQ(tree.extend(shifted, numbers(64, 128)), 0);
  // Fewer tokens than a page find nothing.
  EXPECT_EQ(tree.extend(shifted, numbers(0, 63)), 0);
}

TEST(PrefixTree, EvictsTheLeafUsedLongestAgoThatNobodyHolds) {
  const auto pool = make_pool();
  PrefixTree tree(pool);
  for (const std::int32_t start : {0, 300}) {
    Sequence s(pool);
    ASSERT_TRUE(extend(s, numbers(start, 128)));
    tree.insert(s);
  }
  Sequence holder(pool);
  EXPECT_EQ(tree.extend(holder, numbers(0, 64)), 64);  // touches and holds the first page of the first
  EXPECT_TRUE(tree.evict());                           // the first's second page is the oldest leaf
  Sequence probe(pool);
  EXPECT_EQ(tree.extend(probe, numbers(0, 128)), 64);
  probe.truncate(0);
  EXPECT_TRUE(tree.evict());
  EXPECT_TRUE(tree.evict());
  EXPECT_FALSE(tree.evict());  // the last page is held
  EXPECT_EQ(tree.pages(), 1u);
  holder.truncate(0);
  EXPECT_TRUE(tree.evict());
  EXPECT_EQ(pool->free_pages(), 8u);
}

TEST(PrefixTree, EvictsChainsFromTheirEndsInTheOrderOfUse) {
  const auto pool = make_pool();
  PrefixTree tree(pool);
  std::vector<std::int32_t> branch = numbers(0, 128);  // one page in common with the first chain
  std::fill(branch.begin() + 64, branch.end(), 7);
  const std::vector<std::vector<std::int32_t>> chains{numbers(0, 192), numbers(500, 64), branch};
  for (const auto& tokens : chains) {
    Sequence s(pool);
    ASSERT_TRUE(extend(s, tokens));
    tree.insert(s);
  }
  {  // the second page of the first chain is used last, its third one is not
    Sequence s(pool);
    EXPECT_EQ(tree.extend(s, numbers(0, 128)), 128);
  }
  // Known tokens of each chain after each eviction: ends of chains only, the one used longest ago first.
  const std::vector<std::vector<std::int64_t>> expected{
      {128, 64, 128}, {128, 0, 128}, {128, 0, 64}, {64, 0, 64}, {0, 0, 0}};
  for (const auto& known : expected) {
    ASSERT_TRUE(tree.evict());
    for (std::size_t i = 0; i < chains.size(); ++i) EXPECT_EQ(tree.known(chains[i]), known[i]) << i;
  }
  EXPECT_FALSE(tree.evict());
  EXPECT_EQ(pool->free_pages(), 8u);
  Sequence again(pool);  // an empty tree takes new chains
  ASSERT_TRUE(extend(again, numbers(0, 64)));
  tree.insert(again);
  EXPECT_EQ(tree.known(chains[0]), 64);
}

TEST(PrefixTree, KnowsWhatWasComputedWithTheSameAdapters) {
  const auto pool = make_pool();
  PrefixTree tree(pool);
  Sequence with(pool, 0x123456789AULL);
  ASSERT_TRUE(extend(with, numbers(0, 128)));
  tree.insert(with);
  EXPECT_EQ(tree.known(numbers(0, 128), 0x123456789AULL), 128);
  EXPECT_EQ(tree.known(numbers(0, 128), 0x123456789BULL), 0);
  EXPECT_EQ(tree.known(numbers(0, 128)), 0);
}

TEST(PrefixTree, GivesItsPagesBackAtTheEnd) {
  test::PoolSettings s;
  s.pages = 400;
  const auto pool = make_pool(s);
  {
    PrefixTree tree(pool);
    Sequence deep(pool);
    ASSERT_TRUE(deep.reserve(400 * 64));
    deep.append(std::vector<std::int32_t>(400 * 64, 1));
    tree.insert(deep);
    EXPECT_EQ(tree.pages(), 400u);
  }
  EXPECT_EQ(pool->free_pages(), 400u);
}

}  // namespace
}  // namespace quipu::memory
