// Where intermediate values lie: lifetimes, reuse, alignment, overflow.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/error.hpp"
#include "graph/memory_plan.hpp"

namespace quipu::graph {
namespace {

std::byte g_plan_bytes[1];
TensorView plan_matrix(std::int64_t k, std::int64_t n) {
  return {"w", DType::f32, {k, n, 1, 1}, g_plan_bytes};
}

std::size_t bytes_of(const Graph& graph, std::uint32_t value, std::int64_t tokens, std::int64_t outputs) {
  const ValueInfo& info = graph.values[value];
  return static_cast<std::size_t>((info.rows == Rows::tokens ? tokens : outputs) * info.width) *
         sizeof(float);
}

struct Lifetime {
  std::size_t first, last;
};
std::vector<Lifetime> lifetimes(const Graph& graph) {
  std::vector<Lifetime> lives(graph.values.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    lives[graph.nodes[i].out.id] = {i, i};
    for (const Value v : op_inputs(graph.nodes[i].op)) lives[v.id].last = i;
  }
  return lives;
}

/// Widths and connections at random; every op reads values made before.
Graph random_graph(std::mt19937& random) {
  Builder b;
  const auto pick = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  struct Made {
    Value value;
    std::int64_t width;
  };
  std::vector<Made> tokens, outputs;
  const std::int64_t widths[] = {1, 7, 16, 33, 100};
  for (const std::int64_t width : widths) tokens.push_back({b.at("e").embed(plan_matrix(width, 10)), width});
  outputs.push_back({b.gather_outputs(tokens[0].value), tokens[0].width});
  const std::size_t count = 5 + pick(60);
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<Made>& pool = pick(4) == 0 ? outputs : tokens;
    const Made from = pool[pick(pool.size())];
    const std::int64_t width = widths[pick(5)];
    switch (pick(4)) {
      case 0:
        pool.push_back({b.linear(from.value, plan_matrix(from.width, width)), width});
        break;
      case 1:
        pool.push_back({b.scale(from.value, 2), from.width});
        break;
      case 2: {
        const Value other = b.linear(pool[0].value, plan_matrix(pool[0].width, from.width));
        pool.push_back({b.add(from.value, other), from.width});
        break;
      }
      default:
        if (&pool == &tokens) outputs.push_back({b.gather_outputs(from.value), from.width});
    }
  }
  return b.finish(outputs[pick(outputs.size())].value);
}

TEST(MemoryPlan, ValuesThatLiveTogetherNeverShareBytes) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const Graph graph = random_graph(random);
    const MemoryPlan plan = plan_memory(graph, 1 + round % 5, 1 + round % 3);
    const std::vector<Lifetime> lives = lifetimes(graph);
    // In the largest step and in every smaller one.
    for (std::int64_t tokens = 1; tokens <= plan.max_tokens; ++tokens)
      for (std::int64_t outputs = 0; outputs <= plan.max_outputs; ++outputs) {
        const auto begin = [&](std::uint32_t v) {
          return plan.place[v].offset(static_cast<std::size_t>(tokens), static_cast<std::size_t>(outputs));
        };
        const auto end = [&](std::uint32_t v) { return begin(v) + bytes_of(graph, v, tokens, outputs); };
        for (std::uint32_t a = 0; a < graph.values.size(); ++a) {
          if (graph.output.id == a) continue;
          ASSERT_EQ(begin(a) % MemoryPlan::kAlignment, 0U);
          ASSERT_LE(end(a), plan.bytes);
          for (std::uint32_t b = 0; b < a; ++b) {
            if (graph.output.id == b) continue;
            const bool together = lives[a].first <= lives[b].last && lives[b].first <= lives[a].last;
            ASSERT_FALSE(together && begin(a) < end(b) && begin(b) < end(a))
                << "values " << b << " and " << a << " in round " << round;
          }
        }
      }
  }
}

/// A step of one token out of 512 touches a 512th of the buffer.
TEST(MemoryPlan, ASmallStepUsesTheBeginningOfTheBuffer) {
  Builder b;
  const Value x = b.at("x").embed(plan_matrix(16, 4)), y = b.linear(x, plan_matrix(16, 100)),
              z = b.linear(y, plan_matrix(100, 16));
  const Value rows = b.gather_outputs(b.add(z, x));
  const Graph graph = b.finish(b.linear(rows, plan_matrix(16, 1000)));
  const MemoryPlan plan = plan_memory(graph, 512, 4);
  // x 64 bytes, y 400 on 448, z 64, the sum 64: y is not over before the sum behind a linear is made.
  EXPECT_EQ(plan.bytes, 512U * (64 + 448 + 64 + 64) + 4 * 64);
  EXPECT_EQ(plan.place[z.id].offset(1, 1), 64U + 448);
  EXPECT_EQ(plan.place[z.id].offset(512, 4), 512U * (64 + 448));
  EXPECT_EQ(plan.place[rows.id].offset(1, 1), 64U + 448 + 64 + 64);
  EXPECT_EQ(plan.place[rows.id].offset(512, 4), 512U * (64 + 448 + 64 + 64));
}

/// A chain of `n` scales: whatever its length, two buffers do.
TEST(MemoryPlan, AChainNeedsTwoBuffers) {
  for (const int n : {3, 10, 50}) {
    Builder b;
    Value x = b.at("x").embed(plan_matrix(16, 4));
    for (int i = 0; i < n; ++i) x = b.scale(x, 2);
    const MemoryPlan plan = plan_memory(b.finish(b.gather_outputs(x)), 8, 8);
    EXPECT_EQ(plan.bytes, 2U * 16 * 8 * sizeof(float)) << n;
  }
}

TEST(MemoryPlan, TakesTheFirstGapThatFits) {
  // a (64 B) and b (128 B) die, c lives on: the next 64 B value goes where a was, the 128 B one where b was.
  Builder g;
  const Value a = g.at("a").embed(plan_matrix(16, 1)), b = g.embed(plan_matrix(32, 1)),
              c = g.embed(plan_matrix(16, 1));
  const Value a2 = g.scale(a, 1);                       // behind c: a is still read
  const Value b2 = g.linear(b, plan_matrix(32, 16));    // where a was
  const Value wide = g.linear(c, plan_matrix(16, 32));  // where b was
  const Value end = g.add(g.add(a2, b2), g.linear(wide, plan_matrix(32, 16)));
  const Graph graph = g.finish(g.gather_outputs(end));
  const MemoryPlan plan = plan_memory(graph, 1, 1);
  EXPECT_EQ(plan.place[a.id].offset(1, 1), 0U);
  EXPECT_EQ(plan.place[b.id].offset(1, 1), 64U);
  EXPECT_EQ(plan.place[c.id].offset(1, 1), 192U);
  EXPECT_EQ(plan.place[a2.id].offset(1, 1), 256U);
  EXPECT_EQ(plan.place[b2.id].offset(1, 1), 0U);
  EXPECT_EQ(plan.place[wide.id].offset(1, 1), 64U);
}

TEST(MemoryPlan, AnEmptyStepNeedsNothing) {
  std::mt19937 random(2);
  const MemoryPlan plan = plan_memory(random_graph(random), 0, 0);
  EXPECT_EQ(plan.bytes, 0U);
}

TEST(MemoryPlan, RowsOfOutputsAreCountedOnTheirOwn) {
  Builder b;
  const Value x = b.at("x").embed(plan_matrix(16, 4));
  const Value y = b.scale(b.gather_outputs(x), 2);
  const Graph graph = b.finish(b.linear(y, plan_matrix(16, 1000)));
  EXPECT_EQ(plan_memory(graph, 100, 1).bytes, 100U * 64 + 2 * 64);
}

TEST(MemoryPlan, RefusesWhatDoesNotFitTheAddressSpace) {
  Builder b;
  const Value x = b.at("x").embed(plan_matrix(std::int64_t{1} << 40, 4));
  const Graph graph = b.finish(b.gather_outputs(b.scale(x, 2)));
  for (const std::int64_t tokens : {std::int64_t{1} << 22, std::int64_t{1} << 40, INT64_MAX}) try {
      plan_memory(graph, tokens, 1);
      ADD_FAILURE() << tokens;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    }
}

TEST(MemoryPlan, RefusesNegativeSizes) {
  Builder b;
  const Graph graph = b.finish(b.gather_outputs(b.at("x").embed(plan_matrix(1, 1))));
  EXPECT_THROW(plan_memory(graph, -1, 1), Error);
  EXPECT_THROW(plan_memory(graph, 1, -1), Error);
}

TEST(MemoryPlan, ASumBehindALinearDoesNotTakeThePlaceOfItsInput) {
  Builder b;
  const Value x = b.embed(plan_matrix(64, 10)), residual = b.scale(x, 2);
  const Value product = b.linear(residual, plan_matrix(64, 64));
  const Value sum = b.add(product, x);
  const Graph graph = std::move(b).finish(b.linear(b.gather_outputs(sum), plan_matrix(64, 10)));
  const MemoryPlan plan = plan_memory(graph, 4, 1);
  EXPECT_NE(plan.place[sum.id].offset(1, 1), plan.place[residual.id].offset(1, 1));
  EXPECT_NE(plan.place[sum.id].offset(1, 1), plan.place[product.id].offset(1, 1));
}

}  // namespace
}  // namespace quipu::graph
