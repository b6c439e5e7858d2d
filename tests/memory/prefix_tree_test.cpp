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
  // 130 common tokens: two full pages; two rows more are not worth a copy.
  std::vector<std::int32_t> tokens = numbers(0, 130);
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
  EXPECT_EQ(tree.extend(shifted, numbers(0, PrefixTree::kLeastCopied - 1)), 0);
}

/// What somebody has who asks for these tokens.
std::int64_t found(PrefixTree& tree, const std::shared_ptr<PagePool>& pool,
                   const std::vector<std::int32_t>& tokens, std::uint64_t key = 0) {
  Sequence probe(pool, key);
  const std::int64_t added = tree.extend(probe, tokens);
  EXPECT_EQ(added, probe.length());
  EXPECT_EQ(added, tree.known(tokens, key));
  EXPECT_EQ(wrong_rows(probe), 0);
  const auto same = std::mismatch(probe.tokens().begin(), probe.tokens().end(), tokens.begin(), tokens.end());
  EXPECT_TRUE(same.first == probe.tokens().end());
  return added;
}

TEST(PrefixTree, CopiesTheRowsThatAPageHasInCommon) {
  const auto pool = make_pool();
  PrefixTree tree(pool);
  for (const std::int32_t end : {500, 600, 700}) {  // three pages that begin alike, for longer and longer
    std::vector<std::int32_t> tokens = numbers(0, static_cast<std::size_t>(64 + 10 + (end - 500) / 5));
    tokens.resize(128, end);
    Sequence s(pool);
    ASSERT_TRUE(extend(s, tokens));
    tree.insert(s);
  }
  EXPECT_EQ(tree.pages(), 4u);
  EXPECT_EQ(found(tree, pool, numbers(0, 200)), 64 + 50) << "of the page that has most in common";
  EXPECT_EQ(found(tree, pool, numbers(0, 90)), 90) << "no more than was asked for";
  std::vector<std::int32_t> other = numbers(0, 80);
  other.resize(200, 1);
  EXPECT_EQ(found(tree, pool, other), 80);
  // The copy is the sequence's own, and goes on.
  Sequence s(pool);
  ASSERT_EQ(tree.extend(s, other), 80);
  ASSERT_TRUE(extend(s, std::vector<std::int32_t>(60, 1)));
  EXPECT_EQ(wrong_rows(s), 0);
  EXPECT_EQ(found(tree, pool, numbers(0, 200)), 64 + 50);
}

TEST(PrefixTree, KnowsTheLastPageOfAFinishedSequence) {
  const auto pool = make_pool();
  PrefixTree tree(pool);
  {
    Sequence first(pool);
    ASSERT_TRUE(extend(first, numbers(0, 100)));
    tree.insert_all(first);
    EXPECT_EQ(tree.pages(), 2u);
    // Its owner goes on, and leaves the page that the tree has as it was.
    ASSERT_TRUE(extend(first, numbers(900, 10)));
    EXPECT_EQ(wrong_rows(first), 0);
  }
  EXPECT_EQ(found(tree, pool, numbers(0, 200)), 100);
  EXPECT_EQ(found(tree, pool, numbers(0, 95)), 95);
  // A longer end takes the place of a shorter one with the same tokens; a shorter one adds nothing.
  for (const std::size_t length : {std::size_t{120}, std::size_t{110}}) {
    Sequence next(pool);
    ASSERT_TRUE(extend(next, numbers(0, length)));
    tree.insert_all(next);
    EXPECT_EQ(tree.pages(), 2u);
    EXPECT_EQ(found(tree, pool, numbers(0, 200)), 120);
  }
  // So does a whole page. What is too short to be copied is not kept.
  Sequence whole(pool);
  ASSERT_TRUE(extend(whole, numbers(0, 128 + PrefixTree::kLeastCopied - 1)));
  tree.insert_all(whole);
  EXPECT_EQ(tree.pages(), 2u);
  EXPECT_EQ(found(tree, pool, numbers(0, 200)), 128);
}

TEST(PrefixTree, GivesMoreOfAPageThatASequenceHasInPart) {
  const auto pool = make_pool();
  PrefixTree tree(pool);
  Sequence s(pool);
  ASSERT_TRUE(extend(s, numbers(0, 80)));
  Sequence other(pool);
  ASSERT_TRUE(extend(other, numbers(0, 100)));
  tree.insert_all(other);
  EXPECT_EQ(tree.extend(s, numbers(0, 84)), 0) << "too few to be worth it";
  EXPECT_EQ(tree.extend(s, numbers(0, 200)), 20);
  ASSERT_TRUE(extend(other, numbers(100, 60)));
  tree.insert(other);
  EXPECT_EQ(tree.extend(s, numbers(0, 130)), 28);
  EXPECT_EQ(s.length(), 128);
  EXPECT_EQ(s.pages()[1], other.pages()[1]) << "shared, not copied";
  EXPECT_EQ(wrong_rows(s), 0);
  // Behind what the tree knows a sequence keeps its own.
  ASSERT_TRUE(extend(s, numbers(128, 130)));
  EXPECT_EQ(tree.extend(s, numbers(0, 400)), 0);
  EXPECT_EQ(s.length(), 258);
  EXPECT_EQ(wrong_rows(s), 0);
}

TEST(PrefixTree, APageThatIsNotFullNeverStandsInTheWay) {
  test::PoolSettings settings;
  settings.pages = 2;
  const auto pool = make_pool(settings);
  PrefixTree tree(pool);
  Sequence s(pool);
  ASSERT_TRUE(extend(s, numbers(0, 100)));
  tree.insert_all(s);
  // The pool has no page for a copy of the last one: the tree gives that one up, though it is in use.
  EXPECT_FALSE(s.reserve(1));
  EXPECT_TRUE(tree.evict());
  EXPECT_FALSE(tree.evict()) << "the full one is held";
  ASSERT_TRUE(extend(s, numbers(100, 28)));
  EXPECT_EQ(wrong_rows(s), 0);
  // No page for a copy either: nothing happens.
  Sequence next(pool);
  EXPECT_EQ(tree.extend(next, numbers(0, 40)), 0);
}

TEST(PrefixTree, AnEndKnowsItsAdapters) {
  const auto pool = make_pool();
  PrefixTree tree(pool);
  // With the key's two numbers before them, 62 tokens would look like a page of 64.
  constexpr std::uint64_t kKey = 0x0000000100000000ULL;
  Sequence with(pool, kKey);
  ASSERT_TRUE(extend(with, numbers(0, 62)));
  tree.insert_all(with);
  EXPECT_EQ(found(tree, pool, numbers(0, 100), kKey), 62);
  EXPECT_EQ(found(tree, pool, numbers(0, 100)), 0);
  std::vector<std::int32_t> forged = {0, 1};  // the key's numbers as tokens
  const auto rest = numbers(0, 62);
  forged.insert(forged.end(), rest.begin(), rest.end());
  EXPECT_EQ(tree.known(forged), 0);
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
