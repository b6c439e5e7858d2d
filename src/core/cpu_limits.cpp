#include "core/cpu_limits.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

#include "core/error.hpp"
#include "core/placement.hpp"

#if defined(__linux__)
#include <sched.h>
#endif

namespace quipu {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> ratio(std::optional<double> quota, std::optional<double> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;  // v1 says -1 for unlimited
  return *quota / *period;
}

// cgroup v2: "200000 100000" or "max 100000".
std::optional<double> quota_v2(const fs::path& group) {
  const auto line = first_line(group / "cpu.max");
  if (!line) return std::nullopt;
  std::istringstream words(*line);
  std::string quota, period;
  words >> quota >> period;
  return ratio(parse_number(quota), parse_number(period));
}

std::optional<double> quota_v1(const fs::path& group) {
  const auto quota = first_line(group / "cpu.cfs_quota_us");
  const auto period = first_line(group / "cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  return ratio(parse_number(*quota), parse_number(*period));
}

// The least quota on the way from `group` up to the mount. Inside a container the path that /proc shows may
// not exist below the mount; the levels that do exist count.
std::optional<double> tightest(const fs::path& mount, const std::string& group,
                               std::optional<double> (*read)(const fs::path&)) {
  std::optional<double> least;
  for (fs::path level = fs::path(group).lexically_normal().relative_path();; level = level.parent_path()) {
    if (const auto quota = read(mount / level); quota && (!least || *quota < *least)) least = quota;
    if (level.empty()) return least;
  }
}

bool lists_cpu(std::string_view controllers) {
  std::istringstream names{std::string(controllers)};
  for (std::string name; std::getline(names, name, ',');)
    if (name == "cpu") return true;
  return false;
}

std::string cpus_text(std::size_t count) { return fmt::format("{} CPU{}", count, count == 1 ? "" : "s"); }

// How many CPUs a list of /sys names; none where it is none.
std::size_t count_list(const std::string& list) {
  try {
    return parse_cpu_list(list).size();
  } catch (const Error&) {
    return 0;
  }
}

}  // namespace

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
#if defined(__linux__)
  // The kernel's mask may be wider than cpu_set_t; grow until it fits.
  for (int capacity = 1024; capacity <= 1 << 20; capacity *= 4) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(capacity));
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(capacity));
    CPU_ZERO_S(bytes, set);
    const bool known = ::sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; known && cpu < capacity; ++cpu)
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set)) cpus.push_back(cpu);
    CPU_FREE(set);
    if (known) break;
  }
#endif
  return cpus;
}

std::optional<double> cgroup_cpu_quota(const fs::path& root) {
  const fs::path mount = root / "sys/fs/cgroup";
  std::optional<double> least;
  const auto consider = [&least](std::optional<double> quota) {
    if (quota && (!least || *quota < *least)) least = quota;
  };
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "hierarchy:controllers:/path"
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      consider(tightest(mount, group, quota_v2));
      consider(tightest(mount / "unified", group, quota_v2));
    } else if (lists_cpu(controllers)) {
      consider(tightest(mount / controllers, group, quota_v1));
      if (controllers != "cpu") consider(tightest(mount / "cpu", group, quota_v1));
    }
  }
  return least;
}

ThreadAdvice advise_threads(const fs::path& root, std::span<const int> allowed) {
  // Two hardware threads of a core share its vector units: one thread a core is enough.
  std::set<std::string> cores;
  const fs::path cpus = root / "sys/devices/system/cpu";
  for (const int cpu : allowed) {
    const fs::path topology = cpus / fmt::format("cpu{}", cpu) / "topology";
    auto siblings = first_line(topology / "core_cpus_list");
    if (!siblings) siblings = first_line(topology / "thread_siblings_list");
    cores.insert(siblings ? *siblings : fmt::format("{}", cpu));
  }
  std::size_t count = cores.size();
  if (count == 0) count = std::max(1U, std::thread::hardware_concurrency());

  ThreadAdvice advice;
  advice.reason = fmt::format("{} physical core{}", count, count == 1 ? "" : "s");
  const std::size_t online = count_list(first_line(cpus / "online").value_or(""));
  if (online > allowed.size() && !allowed.empty()) {
    advice.reason += fmt::format(" in the {} that affinity allows of {}", cpus_text(allowed.size()), online);
  } else if (allowed.size() > count) {
    advice.reason += fmt::format(" with {}", cpus_text(allowed.size()));
  }
  if (const auto quota = cgroup_cpu_quota(root)) {
    const double whole = std::max(1.0, std::ceil(*quota));
    if (whole < static_cast<double>(count)) {
      count = static_cast<std::size_t>(whole);
      advice.reason += fmt::format(", limited to {} by the cgroup quota", count);
      if (whole != *quota) advice.reason += fmt::format(" of {:.2f} CPUs", *quota);
    }
  }
  advice.count = static_cast<int>(count);
  return advice;
}

ThreadAdvice default_threads() { return advise_threads("/", allowed_cpus()); }

}  // namespace quipu
