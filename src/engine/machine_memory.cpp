#include "engine/machine_memory.hpp"

#include <fmt/core.h>

#include <fstream>
#include <optional>
#include <sstream>

namespace quipu::engine {

namespace {

namespace fs = std::filesystem;

std::optional<std::uint64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // absent, or "max"
}

/// The number behind `key` in a file of "key number" lines ("MemAvailable:" in /proc/meminfo).
std::optional<std::uint64_t> read_field(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

struct GroupFiles {
  const char *limit, *usage, *cache_key;
};

/// Lowers `least` to what `group` and the groups above it leave.
void visit_groups(const fs::path& mount, const fs::path& group, const GroupFiles& files,
                  std::uint64_t& least) {
  fs::path at = mount / group.relative_path();
  for (int depth = 0; depth < 64; ++depth) {
    const auto limit = read_number(at / files.limit);
    const auto usage = read_number(at / files.usage);
    if (limit && usage && *limit < (std::uint64_t{1} << 60)) {
      const std::uint64_t cache = read_field(at / "memory.stat", files.cache_key).value_or(0);
      const std::uint64_t held = *usage > cache ? *usage - cache : 0;
      least = std::min(least, *limit > held ? *limit - held : 0);
    }
    if (at == mount || !at.has_parent_path()) break;
    at = at.parent_path();
  }
}

std::uint64_t cgroup_free(const fs::path& root) {
  std::uint64_t least = UINT64_MAX;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/path" (v2) or "4:memory:/path" (v1)
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      visit_groups(root / "sys/fs/cgroup", group, {"memory.max", "memory.current", "file"}, least);
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      const GroupFiles v1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"};
      visit_groups(root / "sys/fs/cgroup/memory", group, v1, least);
    }
  }
  return least;
}

}  // namespace

FreeMemory free_memory(const fs::path& root) {
  FreeMemory result;
  if (const auto kib = read_field(root / "proc/meminfo", "MemAvailable:")) {
    result.bytes = *kib * 1024;
    result.reason = fmt::format("{} of free memory", format_bytes(result.bytes));
  }
  if (const std::uint64_t group = cgroup_free(root); group < result.bytes) {
    result.bytes = group;
    result.reason = fmt::format("{} left under the cgroup limit", format_bytes(group));
  }
  return result;
}

std::string format_bytes(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= std::uint64_t{1} << 30) return fmt::format("{:.1f} GiB", value / (1 << 30));
  if (bytes >= std::uint64_t{1} << 20) return fmt::format("{:.0f} MiB", value / (1 << 20));
  return fmt::format("{:.0f} KiB", value / 1024);
}

}  // namespace quipu::engine
