// Which rows enter a step.
#include "engine/scheduler.hpp"

#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace quipu::engine {
namespace {

using Rows = std::map<std::uint64_t, std::int64_t>;

Rows plan(Scheduler& scheduler, const std::vector<Waiting>& waiting, StepBudget budget) {
  Rows rows;
  for (const Share& share : scheduler.plan(waiting, budget)) rows[waiting[share.index].id] += share.rows;
  return rows;
}

TEST(Scheduler, DecodeRowsComeFirstPromptsGetTheRest) {
  Scheduler scheduler;
  EXPECT_EQ(plan(scheduler, {{1, 1000}, {2, 1}, {3, 1}}, {64, 100}), (Rows{{1, 62}, {2, 1}, {3, 1}}));
}

TEST(Scheduler, PromptsTakeTurns) {
  Scheduler scheduler;
  EXPECT_EQ(plan(scheduler, {{1, 1000}, {2, 5}}, {64, 100}), (Rows{{1, 64}}));
  EXPECT_EQ(plan(scheduler, {{1, 936}, {2, 5}}, {64, 100}), (Rows{{2, 5}, {1, 59}}));
  EXPECT_EQ(plan(scheduler, {{1, 877}, {2, 1}, {3, 900}}, {64, 100}), (Rows{{2, 1}, {3, 63}}));
  EXPECT_EQ(plan(scheduler, {{1, 877}, {3, 837}}, {64, 100}), (Rows{{1, 64}}));
}

TEST(Scheduler, DecodeRowsTakeTurnsWhenTheBudgetIsTooSmall) {
  Scheduler scheduler;
  const std::vector<Waiting> waiting{{1, 1}, {2, 1}, {3, 1}};
  EXPECT_EQ(plan(scheduler, waiting, {2, 9}), (Rows{{1, 1}, {2, 1}}));
  EXPECT_EQ(plan(scheduler, waiting, {2, 9}), (Rows{{3, 1}, {1, 1}}));
  EXPECT_EQ(plan(scheduler, waiting, {2, 9}), (Rows{{2, 1}, {3, 1}}));
}

TEST(Scheduler, PromptsDoNotStarveBehindDecodes) {
  Scheduler scheduler;
  const std::vector<Waiting> waiting{{1, 1}, {2, 40}};
  int prompt_rows = 0;
  for (int step = 0; step < 10; ++step) {
    const Rows rows = plan(scheduler, waiting, {1, 9});
    if (const auto it = rows.find(2); it != rows.end()) prompt_rows += static_cast<int>(it->second);
  }
  EXPECT_EQ(prompt_rows, 5);
}

TEST(Scheduler, OutputsAreABudgetToo) {
  Scheduler scheduler;
  // A prompt whose every row has an output takes what the decode row leaves.
  EXPECT_EQ(plan(scheduler, {{1, 1}, {2, 500, true}}, {512, 40}), (Rows{{1, 1}, {2, 39}}));
}

TEST(Scheduler, NothingWaitingGivesNothing) {
  Scheduler scheduler;
  EXPECT_TRUE(plan(scheduler, {}, {512, 10}).empty());
}

}  // namespace
}  // namespace quipu::engine
