// Made-up /proc and /sys trees, in the formats of proc(5), cgroups(7) and the kernel's cputopology.rst.
#include "core/cpu_limits.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "temporary_folder.hpp"

namespace quipu {
namespace {

class FakeMachine : public testing::Test {
 protected:
  void topology(int cpu, std::string_view siblings) {
    root_.write(fmt::format("sys/devices/system/cpu/cpu{}/topology/core_cpus_list", cpu), siblings);
  }
  void cgroup(std::string_view text) { root_.write("proc/self/cgroup", text); }
  void group_file(std::string_view path, std::string_view text) {
    root_.write(fmt::format("sys/fs/cgroup/{}", path), text);
  }
  ThreadAdvice advise(std::vector<int> cpus) const { return advise_threads(root_.path(), cpus); }
  std::optional<double> quota() const { return cgroup_cpu_quota(root_.path()); }

  test::TemporaryFolder root_;
};

TEST_F(FakeMachine, WithoutAnyTreeEveryCpuCounts) {
  const ThreadAdvice advice = advise({0, 1, 2});
  EXPECT_EQ(advice.count, 3);
  EXPECT_EQ(advice.reason, "3 physical cores");
  EXPECT_FALSE(quota().has_value());
}

TEST_F(FakeMachine, HyperthreadsOfACoreCountOnce) {
  for (int cpu = 0; cpu < 8; ++cpu) topology(cpu, fmt::format("{},{}\n", cpu % 4, cpu % 4 + 4));
  root_.write("sys/devices/system/cpu/online", "0-7\n");
  const ThreadAdvice all = advise({0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(all.count, 4);
  EXPECT_EQ(all.reason, "4 physical cores with 8 CPUs");
  const ThreadAdvice pinned = advise({1, 5, 2});
  EXPECT_EQ(pinned.count, 2);
  EXPECT_EQ(pinned.reason, "2 physical cores in the 3 CPUs that affinity allows of 8");
}

TEST_F(FakeMachine, OlderKernelsNameTheSiblingsOtherwise) {
  for (int cpu = 0; cpu < 2; ++cpu)
    root_.write(fmt::format("sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu), "0-1\n");
  EXPECT_EQ(advise({0, 1}).count, 1);
  EXPECT_EQ(advise({0, 1}).reason, "1 physical core with 2 CPUs");
}

TEST_F(FakeMachine, NoKnownAffinityStillGivesAThread) { EXPECT_GE(advise({}).count, 1); }

TEST_F(FakeMachine, QuotaOfCgroupV2Limits) {
  cgroup("0::/docker/abc\n");
  group_file("docker/abc/cpu.max", "200000 100000\n");
  EXPECT_EQ(quota(), 2.0);
  EXPECT_EQ(advise({0, 1, 2, 3}).count, 2);
  EXPECT_EQ(advise({0, 1, 2, 3}).reason, "4 physical cores, limited to 2 by the cgroup quota");
}

TEST_F(FakeMachine, PartsOfACpuRoundUpToAtLeastOne) {
  cgroup("0::/a\n");
  group_file("a/cpu.max", "150000 100000\n");
  EXPECT_EQ(advise({0, 1, 2, 3}).count, 2);
  EXPECT_EQ(advise({0, 1, 2, 3}).reason, "4 physical cores, limited to 2 by the cgroup quota of 1.50 CPUs");
  group_file("a/cpu.max", "10000 100000\n");
  EXPECT_EQ(advise({0, 1, 2, 3}).count, 1);
}

TEST_F(FakeMachine, AQuotaAboveTheCoresChangesNothing) {
  cgroup("0::/a\n");
  group_file("a/cpu.max", "800000 100000\n");
  EXPECT_EQ(advise({0, 1}).count, 2);
  EXPECT_EQ(advise({0, 1}).reason, "2 physical cores");
}

TEST_F(FakeMachine, TheTightestGroupOnTheWayUpDecides) {
  cgroup("0::/kubepods/pod1/box\n");
  group_file("kubepods/pod1/box/cpu.max", "max 100000\n");
  group_file("kubepods/pod1/cpu.max", "300000 100000\n");
  group_file("kubepods/cpu.max", "1600000 100000\n");
  EXPECT_EQ(quota(), 3.0);
  group_file("cpu.max", "100000 100000\n");
  EXPECT_EQ(quota(), 1.0);
}

TEST_F(FakeMachine, InsideAContainerTheMountItselfIsTheGroup) {
  cgroup("0::/system.slice/docker-123.scope\n");  // not visible below the container's mount
  group_file("cpu.max", "50000 100000\n");
  EXPECT_EQ(quota(), 0.5);
  cgroup("0::/../../other\n");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(FakeMachine, UnlimitedIsNoQuota) {
  cgroup("0::/a\n");
  group_file("a/cpu.max", "max 100000\n");
  EXPECT_FALSE(quota().has_value());
}

TEST_F(FakeMachine, QuotaOfCgroupV1Limits) {
  cgroup("12:cpuset:/x\n5:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n0::/docker/abc\n");
  group_file("cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "250000\n");
  group_file("cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
  group_file("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  group_file("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 2.5);
}

TEST_F(FakeMachine, CgroupV1ControllersMayHaveAMountOfTheirOwn) {
  cgroup("4:cpu:/a\n");
  group_file("cpu/a/cpu.cfs_quota_us", "100000\n");
  group_file("cpu/a/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(quota(), 2.0);
  cgroup("4:cpuacct,cpu:/a\n");
  EXPECT_EQ(quota(), 2.0);
  cgroup("4:cpuacct:/a\n");  // accounts only, limits nothing
  EXPECT_FALSE(quota().has_value());
}

TEST_F(FakeMachine, HybridTreesHaveTheUnifiedGroupInAFolder) {
  cgroup("0::/a\n");
  group_file("unified/a/cpu.max", "100000 100000\n");
  EXPECT_EQ(quota(), 1.0);
}

TEST_F(FakeMachine, NonsenseIsNoQuota) {
  for (const std::string_view text :
       {"", "\n", "x y\n", "100000\n", "0 100000\n", "-5 100000\n", "100000 0\n"}) {
    cgroup("0::/a\n");
    group_file("a/cpu.max", text);
    EXPECT_FALSE(quota().has_value()) << text;
  }
  cgroup("no colons\n:\n::\n\n");
  EXPECT_FALSE(quota().has_value());
}

TEST(DefaultThreads, GivesAtLeastOneAndAReasonOnThisMachine) {
  const ThreadAdvice advice = default_threads();
  EXPECT_GE(advice.count, 1);
  EXPECT_NE(advice.reason.find("physical core"), std::string::npos);
  if (!allowed_cpus().empty()) {
    EXPECT_LE(static_cast<std::size_t>(advice.count), allowed_cpus().size());
  }
}

}  // namespace
}  // namespace quipu
