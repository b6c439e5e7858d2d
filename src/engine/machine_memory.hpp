// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace quipu::engine {

struct FreeMemory {
  std::uint64_t bytes = UINT64_MAX;
  std::string reason;  ///< "3.1 GiB of free memory", "2.0 GiB left under the cgroup limit"
};

/// The lower of what the machine has available (/proc/meminfo) and what the control groups of this process
/// leave it (v1 and v2; page cache counts as free, the kernel takes it back). `root` is prepended to /proc
/// and /sys.
FreeMemory free_memory(const std::filesystem::path& root = "/");

/// "3.1 GiB", "512 MiB", "96 KiB".
std::string format_bytes(std::uint64_t bytes);

}  // namespace quipu::engine
