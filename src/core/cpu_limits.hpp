// How many CPUs this process may use: topology, affinity and cgroup quotas, read from /sys and /proc.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "core/threads.hpp"

namespace quipu {

/// CPUs the scheduler may place this process on, ascending; empty when the system does not say.
std::vector<int> allowed_cpus();

/// The tightest cgroup CPU quota, in CPUs (0.5 = half of one), of this process's group and the groups above
/// it, v2 (cpu.max) and v1 (cpu.cfs_quota_us); none when unlimited. `root` is prepended to /proc and /sys.
std::optional<double> cgroup_cpu_quota(const std::filesystem::path& root);

/// `default_threads()` for the given allowed CPUs and the /proc and /sys trees below `root`.
ThreadAdvice advise_threads(const std::filesystem::path& root, std::span<const int> allowed);

}  // namespace quipu
