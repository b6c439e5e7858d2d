// What runs a graph: devices, memory, compilation to a plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/threads.hpp"
#include "graph/graph.hpp"
#include "graph/memory_plan.hpp"
#include "graph/step.hpp"

namespace quipu::backends {

struct DeviceInfo {
  std::string name;            ///< "cpu:0", "reference:0"
  std::string description;     ///< "AVX-512 VNNI kernels, 2 threads"
  std::uint64_t memory_bytes;  ///< budget
  std::uint64_t used_bytes;    ///< allocated from it now
};

/// Memory of a device; returned to the device's budget on destruction. Zero-filled. `data()` is
/// host-addressable for host backends.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::byte* data() = 0;
  virtual std::size_t size() const = 0;
};

/// A compiled piece of a graph. Immutable but for its own scratch; one `run` at a time.
class Plan {
 public:
  virtual ~Plan() = default;
  /// Runs the nodes it was compiled from. `scratch` is the buffer of the memory plan it was compiled with.
  /// The step has at most max_tokens rows and max_outputs outputs, and is valid: checked by the caller. Does
  /// not throw or allocate.
  virtual void run(const graph::Step& step, std::byte* scratch) = 0;
  /// Working memory the plan holds beyond the shared scratch (quantised activations, partial sums), in bytes.
  virtual std::size_t private_bytes() const = 0;
};

struct NodeRange {
  std::size_t begin, end;
};

/// Thread-safe but for `compile`d plans.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  virtual std::vector<DeviceInfo> devices() const = 0;
  /// Throws `Error` (out_of_memory) that names the device, what was asked and what is left of the budget.
  virtual std::unique_ptr<Buffer> allocate(int device, std::size_t bytes) = 0;
  /// Nothing when the backend runs the node; otherwise the reason why not.
  virtual std::optional<std::string> declines(const graph::Graph& graph, const graph::Node& node) const = 0;
  /// The graph (at this address), its weights and the memory plan must outlive the result.
  virtual std::unique_ptr<Plan> compile(const graph::Graph& graph, NodeRange nodes,
                                        const graph::MemoryPlan& memory) = 0;
};

/// Plain loops in float, double accumulators where sums are long: the oracle the others are tested against.
/// Linear decodes weights exactly and does not quantise activations.
std::unique_ptr<Backend> make_reference_backend(std::uint64_t memory_budget = UINT64_MAX);

struct CpuOptions {
  std::shared_ptr<ThreadPool> threads;                    ///< null: a pool of default_threads()
  std::vector<std::uint64_t> device_budgets{UINT64_MAX};  ///< one virtual device cpu:i each
};
/// Kernels for `selected_isa()`, chosen once here.
std::unique_ptr<Backend> make_cpu_backend(CpuOptions options = {});

/// A whole graph, placed on a list of backends and compiled: each node runs on the first backend that does
/// not decline it; neighbours on one backend form one plan. All backends must be host-addressable (they share
/// the scratch).
class Program {
 public:
  /// Throws `Error` (unsupported) that lists each backend's reason for a node nobody runs.
  Program(graph::Graph graph, std::span<const std::shared_ptr<Backend>> backends, std::int64_t max_tokens,
          std::int64_t max_outputs);
  ~Program();
  Program(Program&&) noexcept;

  const graph::Graph& graph() const;
  std::int64_t max_tokens() const;
  std::int64_t max_outputs() const;
  /// Checks the step against the graph and capacities (`Error` invalid_argument), then runs it.
  void run(const graph::Step& step);
  std::size_t scratch_bytes() const;  ///< scratch and all private bytes
  /// Index into the list of backends, per node.
  const std::vector<std::size_t>& placement() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quipu::backends
