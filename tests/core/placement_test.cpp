// CPU lists as taskset(1) has them, and made-up /sys trees in the format of the kernel's numa documentation.
#include "core/placement.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "core/cpu_limits.hpp"
#include "core/error.hpp"
#include "temporary_folder.hpp"

namespace quipu {
namespace {

using Cpus = std::vector<int>;

TEST(CpuLists, AreNumbersAndRanges) {
  EXPECT_EQ(parse_cpu_list("3"), Cpus({3}));
  EXPECT_EQ(parse_cpu_list("0-3,8"), Cpus({0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("5,1-2,2"), Cpus({1, 2, 5}));
  EXPECT_EQ(cpu_list(Cpus({0, 1, 2, 3, 8, 10, 11})), "0-3,8,10-11");
  EXPECT_EQ(cpu_list(Cpus({})), "");
}

TEST(CpuLists, WhatIsNoListIsAnErrorThatShowsIt) {
  for (const char* text : {"", ",", "a", "1,", "1-", "-1", "3-1", "1--2", "99999999999", "1 2", "0x1"}) {
    try {
      (void)parse_cpu_list(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(error.message().find("\"" + std::string(text) + "\""), std::string::npos) << error.message();
    }
  }
}

TEST(NumaNodes, HaveTheCpusThatAreAllowed) {
  test::TemporaryFolder root;
  EXPECT_TRUE(numa_nodes(root.path(), Cpus({0, 1})).empty());
  root.write("sys/devices/system/node/online", "0-2\n");
  root.write("sys/devices/system/node/node0/cpulist", "0-3,8-11\n");
  root.write("sys/devices/system/node/node1/cpulist", "4-7,12-15\n");
  root.write("sys/devices/system/node/node2/cpulist", "\n");  // memory only
  const std::vector<NumaNode> nodes = numa_nodes(root.path(), Cpus({2, 3, 4, 8, 15}));
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_EQ(nodes[0].number, 0);
  EXPECT_EQ(nodes[0].cpus, Cpus({2, 3, 8}));
  EXPECT_EQ(nodes[1].cpus, Cpus({4, 15}));
  EXPECT_EQ(nodes[2].number, 2);
  EXPECT_TRUE(nodes[2].cpus.empty());
}

TEST(Placement, ThreadsStartedAfterwardsKeepToTheCpus) {
  const Cpus before = allowed_cpus();
  if (before.empty()) GTEST_SKIP() << "SKIPPED: this system does not tell its CPUs";
  Cpus inner;
  std::string told;
  std::thread([&] {
    told = place_threads(Cpus({before.back()}), NumaPolicy::none);
    std::thread([&] { inner = allowed_cpus(); }).join();
  }).join();
  EXPECT_EQ(inner, Cpus({before.back()}));
  EXPECT_EQ(told, "CPUs " + std::to_string(before.back()));
  EXPECT_EQ(allowed_cpus(), before);  // this thread is as it was
}

TEST(Placement, CpusThatAreNotThereAreNamedWithThoseThatAre) {
  try {
    (void)place_threads(Cpus({0, 9999}), NumaPolicy::none);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error.message(),
              "CPUs 0,9999 were asked for; this process may use " + cpu_list(allowed_cpus()));
  }
}

TEST(Placement, PoliciesLeaveAThreadOnCpusOfItsOwn) {
  for (const NumaPolicy policy : {NumaPolicy::isolate, NumaPolicy::distribute}) {
    std::string told;
    Cpus after;
    std::thread([&] {
      try {
        told = place_threads({}, policy);
      } catch (const Error& error) {  // a container may forbid it
        EXPECT_EQ(error.code(), ErrorCode::unsupported);
        told = error.message();
      }
      after = allowed_cpus();
    }).join();
    EXPECT_NE(told, "");
    EXPECT_FALSE(after.empty());
  }
}

}  // namespace
}  // namespace quipu
