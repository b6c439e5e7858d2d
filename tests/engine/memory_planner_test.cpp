// The memory plan, and where the numbers about the machine come from.
#include "engine/memory_planner.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "core/error.hpp"
#include "tiny_model.hpp"

namespace quipu::engine {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// 100 MiB of weights, 20 MiB of scratch, 1 MiB a page, trained for 1024 positions (16 pages).
MemoryNeeds needs() {
  MemoryNeeds n;
  n.weights = 100 * kMiB;
  n.scratch = 20 * kMiB;
  n.page_bytes = kMiB;
  n.trained_context = 1024;
  return n;
}

TEST(MemoryPlanner, TheTrainedContextWhenItFits) {
  const auto d = plan_engine_memory(needs(), {136 * kMiB, "136 MiB"});
  EXPECT_EQ(d.report.context, 1024);
  EXPECT_EQ(d.report.kv, 16 * kMiB);
  EXPECT_EQ(d.pages, 16u);
  EXPECT_EQ(d.report.context_reason, "the model's trained context");
  EXPECT_EQ(d.report.weights + d.report.scratch + d.report.kv, d.report.budget);
}

TEST(MemoryPlanner, LessWithTheReasonWhenItDoesNot) {
  const auto d = plan_engine_memory(needs(), {136 * kMiB - 1, "136 MiB of free memory"});
  EXPECT_EQ(d.report.context, 15 * 64);
  EXPECT_EQ(d.report.context_reason, "limited by 136 MiB of free memory");
  MemoryNeeds shared = needs();
  shared.sequences = 3;
  EXPECT_EQ(plan_engine_memory(shared, {131 * kMiB, ""}).report.context, 3 * 64);
  EXPECT_EQ(plan_engine_memory(shared, {131 * kMiB, ""}).pages, 9u);
}

TEST(MemoryPlanner, AShrinkingPoolKeepsTheContextAndTakesHalfOfWhatIsLeft) {
  MemoryNeeds n = needs();
  n.sequences = 8;  // 128 pages would hold them all
  n.shrink_pool = true;
  auto d = plan_engine_memory(n, {220 * kMiB, ""});  // 100 pages are left
  EXPECT_EQ(d.report.context, 1024);
  EXPECT_EQ(d.pages, 50u);
  EXPECT_EQ(plan_engine_memory(n, {140 * kMiB, ""}).pages, 16u);    // one whole context, though it is most
  EXPECT_EQ(plan_engine_memory(n, {1000 * kMiB, ""}).pages, 128u);  // never more than is needed
  n.context = 2048;
  EXPECT_EQ(plan_engine_memory(n, {220 * kMiB, ""}).report.context, 2048);
  EXPECT_EQ(plan_engine_memory(n, {220 * kMiB, ""}).pages, 50u);
  EXPECT_THROW(plan_engine_memory(n, {151 * kMiB, ""}), Error);
}

TEST(MemoryPlanner, AContextAskedForFitsOrIsAnErrorWithBothNumbers) {
  MemoryNeeds n = needs();
  n.context = 2000;  // 32 pages
  EXPECT_EQ(plan_engine_memory(n, {152 * kMiB, ""}).report.context, 2000);
  EXPECT_EQ(plan_engine_memory(n, {152 * kMiB, ""}).pages, 32u);
  try {
    plan_engine_memory(n, {151 * kMiB, "151 MiB of free memory"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_EQ(
        error.message(),
        "a context of 2000 tokens needs 32 MiB for keys and values (16 KiB per token), beside 100 MiB of "
        "weights and 20 MiB of scratch; there are 151 MiB of free memory");
  }
  n.context = INT64_MAX;
  EXPECT_THROW(plan_engine_memory(n, {UINT64_MAX / 2, ""}), Error);
}

TEST(MemoryPlanner, NotEvenOnePageIsAnError) {
  EXPECT_THROW(plan_engine_memory(needs(), {120 * kMiB, ""}), Error);
  EXPECT_THROW(plan_engine_memory(needs(), {5, ""}), Error);
  EXPECT_EQ(plan_engine_memory(needs(), {121 * kMiB, ""}).report.context, 64);
}

class MachineMemory : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  test::TemporaryFolder root;
};

TEST_F(MachineMemory, MemAvailableOfProcMeminfo) {
  put("proc/meminfo", "MemTotal:       16000000 kB\nMemFree:        100 kB\nMemAvailable:    2097152 kB\n");
  EXPECT_EQ(free_memory(root.path()).bytes, 2048 * kMiB);
  EXPECT_EQ(free_memory(root.path()).reason, "2.0 GiB of free memory");
}

TEST_F(MachineMemory, TheTightestGroupOfVersion2LessItsPageCache) {
  put("proc/meminfo", "MemAvailable:    2097152 kB\n");
  put("proc/self/cgroup", "0::/a/b\n");
  put("sys/fs/cgroup/a/b/memory.max", "max\n");
  put("sys/fs/cgroup/a/b/memory.current", "1000\n");
  put("sys/fs/cgroup/a/memory.max", "536870912\n");                // 512 MiB
  put("sys/fs/cgroup/a/memory.current", "209715200\n");            // 200 MiB
  put("sys/fs/cgroup/a/memory.stat", "anon 5\nfile 104857600\n");  // of which 100 MiB are cache
  EXPECT_EQ(free_memory(root.path()).bytes, 412 * kMiB);
  EXPECT_EQ(free_memory(root.path()).reason, "412 MiB left under the cgroup limit");
}

TEST_F(MachineMemory, GroupsOfVersion1) {
  put("proc/meminfo", "MemAvailable:    2097152 kB\n");
  put("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n");
  put("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "104857600\n");
  put("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "10485760\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n");
  EXPECT_EQ(free_memory(root.path()).bytes, 90 * kMiB);
}

TEST_F(MachineMemory, ASystemThatSaysNothingIsNoLimit) {
  EXPECT_EQ(free_memory(root.path()).bytes, UINT64_MAX);
  EXPECT_GT(free_memory().bytes, kMiB);
}

}  // namespace
}  // namespace quipu::engine
