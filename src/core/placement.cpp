#include "core/placement.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>

#include "core/cpu_limits.hpp"
#include "core/error.hpp"

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace quipu {
namespace {

constexpr int kMostCpus = 1 << 20;

int parse_cpu(std::string_view digits, std::string_view whole) {
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0 || value >= kMostCpus)
    fail(ErrorCode::invalid_argument, "the list of CPUs is \"{}\"; expected numbers and ranges, as 0-3,8",
         printable(whole));
  return value;
}

std::string line_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

#if defined(__linux__)

void keep_to(std::span<const int> cpus) {
  const auto capacity = static_cast<std::size_t>(*std::max_element(cpus.begin(), cpus.end())) + 1;
  cpu_set_t* set = CPU_ALLOC(capacity);
  if (set == nullptr) fail(ErrorCode::out_of_memory, "no memory for a set of {} CPUs", capacity);
  const std::size_t bytes = CPU_ALLOC_SIZE(capacity);
  CPU_ZERO_S(bytes, set);
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set);
  const int result = ::sched_setaffinity(0, bytes, set);
  const int number = errno;
  CPU_FREE(set);
  if (result != 0)
    fail(ErrorCode::unsupported, "the system refuses CPUs {}: {}", cpu_list(cpus), std::strerror(number));
}

// set_mempolicy(2), without its library.
void interleave(std::span<const NumaNode> nodes) {
  constexpr int kInterleave = 3;  // MPOL_INTERLEAVE
  constexpr std::size_t kBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> mask;
  for (const NumaNode& node : nodes) {
    const auto bit = static_cast<std::size_t>(node.number);
    mask.resize(std::max(mask.size(), bit / kBits + 1));
    mask[bit / kBits] |= 1UL << bit % kBits;
  }
  if (::syscall(SYS_set_mempolicy, kInterleave, mask.data(), mask.size() * kBits + 1) != 0)
    fail(ErrorCode::unsupported, "the system refuses to spread memory over its nodes: {}",
         std::strerror(errno));
}

#else

void keep_to(std::span<const int>) {
  fail(ErrorCode::unsupported, "this system does not let a process choose its CPUs");
}
void interleave(std::span<const NumaNode>) {
  fail(ErrorCode::unsupported, "this system does not let a process place its memory");
}

#endif

/// The node that the calling thread runs on.
const NumaNode& own_node(std::span<const NumaNode> nodes) {
  int cpu = -1;
#if defined(__linux__)
  cpu = ::sched_getcpu();
#endif
  for (const NumaNode& node : nodes)
    if (std::binary_search(node.cpus.begin(), node.cpus.end(), cpu)) return node;
  return *std::find_if(nodes.begin(), nodes.end(), [](const NumaNode& node) { return !node.cpus.empty(); });
}

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view range = text.substr(at, comma - at);
    const std::size_t dash = range.find('-');
    const int first = parse_cpu(range.substr(0, dash), text);
    const int last = dash == std::string_view::npos ? first : parse_cpu(range.substr(dash + 1), text);
    if (last < first)
      fail(ErrorCode::invalid_argument, "the list of CPUs is \"{}\": {} ends before it begins",
           printable(text), printable(range));
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    at = comma + 1;
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string cpu_list(std::span<const int> cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += end - i == 1 ? fmt::format("{}", cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[end - 1]);
    i = end;
  }
  return text;
}

std::vector<NumaNode> numa_nodes(const std::filesystem::path& root, std::span<const int> allowed) {
  const std::filesystem::path folder = root / "sys/devices/system/node";
  const std::string online = line_of(folder / "online");
  std::vector<NumaNode> nodes;
  if (online.empty()) return nodes;
  for (const int number : parse_cpu_list(online)) {
    NumaNode node{number, {}};
    const std::string list = line_of(folder / fmt::format("node{}", number) / "cpulist");
    if (!list.empty()) {
      const std::vector<int> cpus = parse_cpu_list(list);
      std::set_intersection(cpus.begin(), cpus.end(), allowed.begin(), allowed.end(),
                            std::back_inserter(node.cpus));
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::string place_threads(std::span<const int> cpus, NumaPolicy policy) {
  std::string done;
  if (!cpus.empty()) {
    const std::vector<int> allowed = allowed_cpus();
    if (!std::includes(allowed.begin(), allowed.end(), cpus.begin(), cpus.end()))
      fail(ErrorCode::invalid_argument, "CPUs {} were asked for; this process may use {}", cpu_list(cpus),
           cpu_list(allowed));
    keep_to(cpus);
    done = fmt::format("CPUs {}", cpu_list(cpus));
  }
  if (policy == NumaPolicy::none) return done;
  const std::vector<NumaNode> nodes = numa_nodes("/", allowed_cpus());
  if (nodes.size() < 2) return done + (done.empty() ? "one NUMA node" : ", one NUMA node");
  if (!done.empty()) done += ", ";
  if (policy == NumaPolicy::distribute) {
    interleave(nodes);
    return done + fmt::format("memory of {} NUMA nodes in turns", nodes.size());
  }
  const NumaNode& own = own_node(nodes);
  keep_to(own.cpus);
  return done + fmt::format("NUMA node {}", own.number);
}

}  // namespace quipu
