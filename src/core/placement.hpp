// Where threads run and where memory lies: CPU lists, and the nodes of machines with several memory
// controllers (NUMA).
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quipu {

/// Numbers of a list such as "0-3,8", ascending, each once. Throws `Error` (invalid_argument).
std::vector<int> parse_cpu_list(std::string_view text);
/// The same numbers as a list: "0-3,8".
std::string cpu_list(std::span<const int> cpus);

struct NumaNode {
  int number;
  std::vector<int> cpus;  ///< of `allowed`, ascending; may be empty (memory only)
};
/// From the /sys tree below `root`; none where it does not say.
std::vector<NumaNode> numa_nodes(const std::filesystem::path& root, std::span<const int> allowed);

enum class NumaPolicy {
  none,        ///< as the system does it
  isolate,     ///< threads keep to the node that this one runs on
  distribute,  ///< memory is taken from all nodes in turns
};

/// This thread, and those it starts from now on, keep to `cpus` (empty: as it is) and follow `policy`.
/// Returns, for people, what that came to; empty for nothing. Throws `Error` (invalid_argument) for CPUs that
/// this process may not use, (unsupported) where the system has no such control or refuses it.
std::string place_threads(std::span<const int> cpus, NumaPolicy policy);

}  // namespace quipu
