#include "memory/prefix_tree.hpp"

#include <gtest/gtest.h>

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
