// Pages and sequences against a plain model: what was written for a sequence is what it holds.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "core/error.hpp"
#include "page_fixture.hpp"
#include "support.hpp"

namespace quipu::memory {
namespace {

using test::extend;
using test::make_pool;
using test::numbers;
using test::wrong_rows;

TEST(PagePool, PageBytesFollowHeadsAndDtypes) {
  // Layers of 2 and 1 heads, 64 positions: keys 8 floats, values 4 halves: 3 * 64 * (32 + 8) = 7680.
  EXPECT_EQ(make_pool()->page_bytes(), 7680u);
  // Q8_0: 34 bytes for 32 elements: 64 * (34 + 2 * 34).
  test::PoolSettings q8;
  q8.k = q8.v = DType::q8_0;
  q8.kv_heads = {1};
  q8.key_dim = 32;
  q8.value_dim = 64;
  EXPECT_EQ(make_pool(q8)->page_bytes(), 64u * 34 * 3);
}

TEST(PagePool, LayersMayHaveHeadSizesOfTheirOwnOrNoHeads) {
  test::FakeBackend backend(1 << 20);
  const std::vector<graph::KvShape> layers{{2, 8, 4}, {0, 0, 0}, {1, 16, 24}};
  KvOptions options;
  options.k_dtype = options.v_dtype = DType::f32;
  options.pages = 2;
  const PagePool pool(backend, 0, layers, 1000, options);
  // 64 positions of floats: 2 heads of 8 + 4, none, 1 head of 16 + 24.
  EXPECT_EQ(pool.page_bytes(), 64u * 4 * (2 * 12 + 40));
  EXPECT_EQ(pool.layers()[2].v, pool.layers()[0].k + 64 * 4 * (2 * 12 + 16));
}

TEST(PagePool, APageIsOnePieceOfMemoryLayerAfterLayer) {
  const auto pool = make_pool();
  const auto layers = pool->layers();
  ASSERT_EQ(layers.size(), 2u);
  const std::size_t keys = 64 * 32, values = 64 * 8, page = 3 * (keys + values);  // of a head; 2 heads, and 1
  for (const graph::KvLayer& layer : layers) {
    EXPECT_EQ(layer.k_page_bytes, page);
    EXPECT_EQ(layer.v_page_bytes, page);
  }
  EXPECT_EQ(layers[0].v, layers[0].k + 2 * keys);
  EXPECT_EQ(layers[1].k, layers[0].v + 2 * values);
  EXPECT_EQ(layers[1].v, layers[1].k + keys);
  EXPECT_EQ(pool->page(3).data(), layers[0].k + 3 * layers[0].k_page_bytes);
  EXPECT_EQ(pool->page(3).size(), page);
}

TEST(PagePool, RefusesTypesAndHeadSizesThatDoNotFit) {
  test::PoolSettings s;
  s.k = DType::q4_0;
  EXPECT_THROW(make_pool(s), Error);
  s.k = DType::q8_0;
  s.key_dim = 24;
  try {
    make_pool(s);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error.message(),
              "the cache type Q8_0 of keys needs a head size that is a multiple of 32, the model's is 24");
  }
}

TEST(PagePool, RefusesABudgetThatIsTooSmall) {
  test::FakeBackend backend(7680 * 3);
  KvOptions options;
  options.k_dtype = DType::f32;
  options.pages = 3;
  EXPECT_NO_THROW(PagePool(backend, 0, test::layers_of({}), 1000, options));
  options.pages = 4;
  EXPECT_THROW(PagePool(backend, 0, test::layers_of({}), 1000, options), Error);
}

TEST(PagePool, HandsOutEveryPageOnceInAnyOrder) {
  for (const bool scatter : {false, true}) {
    test::PoolSettings s;
    s.scatter = scatter;
    const auto pool = make_pool(s);
    std::vector<std::uint32_t> order;
    while (const auto page = pool->take()) order.push_back(*page);
    EXPECT_EQ(std::set<std::uint32_t>(order.begin(), order.end()).size(), 8u);
    EXPECT_EQ(std::is_sorted(order.begin(), order.end()), !scatter);
    EXPECT_EQ(pool->free_pages(), 0u);
    pool->add_reference(order[2]);
    pool->release(order[2]);
    EXPECT_EQ(pool->free_pages(), 0u);
    pool->release(order[2]);
    EXPECT_EQ(pool->take(), order[2]);
  }
}

TEST(Sequence, ReserveTakesPagesOrNothing) {
  const auto pool = make_pool();
  Sequence a(pool), b(pool);
  EXPECT_TRUE(a.reserve(64 * 7));
  EXPECT_FALSE(b.reserve(65));
  EXPECT_EQ(pool->free_pages(), 1u);
  EXPECT_TRUE(b.pages().empty());
  EXPECT_TRUE(b.reserve(64));
  EXPECT_TRUE(b.reserve(64));  // again: the room is there
  EXPECT_EQ(pool->free_pages(), 0u);
  a.truncate(0);
  EXPECT_EQ(pool->free_pages(), 7u);
}

TEST(Sequence, AppendWithoutRoomIsABrokenInvariant) {
  Sequence a(make_pool());
  EXPECT_THROW(a.append(numbers(0, 1)), Error);
}

TEST(Sequence, ForkSharesPagesAndCopiesOnWrite) {
  const auto pool = make_pool();
  Sequence a(pool);
  ASSERT_TRUE(extend(a, numbers(0, 100)));
  Sequence b = a.fork();
  EXPECT_EQ(pool->free_pages(), 6u);
  ASSERT_TRUE(extend(b, numbers(500, 10)));
  EXPECT_EQ(pool->free_pages(), 5u);  // the half-full page only
  EXPECT_EQ(a.pages()[0], b.pages()[0]);
  EXPECT_NE(a.pages()[1], b.pages()[1]);
  ASSERT_TRUE(extend(a, numbers(700, 10)));
  EXPECT_EQ(pool->free_pages(), 5u);  // now a's alone
  EXPECT_EQ(wrong_rows(a), 0);
  EXPECT_EQ(wrong_rows(b), 0);
}

TEST(Sequence, MovedFromIsEmptyAndUsable) {
  const auto pool = make_pool();
  Sequence a(pool);
  ASSERT_TRUE(extend(a, numbers(0, 70)));
  Sequence b = std::move(a);
  EXPECT_EQ(a.length(), 0);
  EXPECT_EQ(b.length(), 70);
  ASSERT_TRUE(extend(a, numbers(1, 3)));
  a = std::move(b);
  EXPECT_EQ(a.length(), 70);
  EXPECT_EQ(wrong_rows(a), 0);
  EXPECT_EQ(pool->free_pages(), 6u);
}

TEST(Sequence, TruncateInsideASharedPageLeavesTheOtherAlone) {
  const auto pool = make_pool();
  Sequence a(pool);
  ASSERT_TRUE(extend(a, numbers(0, 128)));
  Sequence b = a.fork();
  b.truncate(70);
  EXPECT_EQ(b.bytes(), 2 * pool->page_bytes());
  ASSERT_TRUE(extend(b, numbers(300, 60)));
  EXPECT_EQ(wrong_rows(a), 0);
  EXPECT_EQ(wrong_rows(b), 0);
  b.truncate(1000);  // longer than it is: nothing
  EXPECT_EQ(b.length(), 130);
}

TEST(Sequence, RandomHistoriesKeepEveryContentAndLeakNoPage) {
  for (const bool scatter : {false, true}) {
    test::PoolSettings s;
    s.pages = 24;
    s.scatter = scatter;
    const auto pool = make_pool(s);
    std::mt19937 random(7);
    std::vector<Sequence> sequences;
    std::vector<std::vector<std::int32_t>> expected;
    const auto pick = [&](std::size_t n) {
      return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
    };
    for (int turn = 0; turn < 400 / test::kSanitizerShare; ++turn) {
      const std::size_t action = pick(10);
      if (sequences.empty() || action == 0) {
        sequences.emplace_back(pool);
        expected.emplace_back();
      } else if (action == 1) {
        const std::size_t from = pick(sequences.size());
        sequences.push_back(sequences[from].fork());
        expected.push_back(expected[from]);
      } else if (action == 2) {
        const auto at = static_cast<std::ptrdiff_t>(pick(sequences.size()));
        sequences.erase(sequences.begin() + at);
        expected.erase(expected.begin() + at);
      } else if (action <= 4) {
        const std::size_t i = pick(sequences.size());
        const std::size_t length = pick(expected[i].size() + 1);
        sequences[i].truncate(static_cast<std::int64_t>(length));
        expected[i].resize(length);
      } else {
        const std::size_t i = pick(sequences.size());
        const auto tokens = numbers(static_cast<std::int32_t>(pick(900)), 1 + pick(90));
        if (extend(sequences[i], tokens)) expected[i].insert(expected[i].end(), tokens.begin(), tokens.end());
      }
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        ASSERT_TRUE(std::equal(expected[i].begin(), expected[i].end(), sequences[i].tokens().begin(),
                               sequences[i].tokens().end()));
        ASSERT_EQ(wrong_rows(sequences[i]), 0) << "turn " << turn;
      }
    }
    sequences.clear();
    EXPECT_EQ(pool->free_pages(), 24u);
  }
}

}  // namespace
}  // namespace quipu::memory
