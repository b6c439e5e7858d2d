// The reference backend: plain loops over the graph's nodes.
#include <algorithm>
#include <utility>

#include "backends/backend.hpp"
#include "backends/host_memory.hpp"
#include "backends/reference/kernels.hpp"
#include "core/error.hpp"

namespace quipu::backends {
namespace reference {

std::vector<float> decode(const TensorView& weight) {
  std::vector<float> values(static_cast<std::size_t>(weight.elements()));
  for (std::int64_t row = 0; row < weight.rows(); ++row)
    info(weight.dtype)
        .decode(weight.data + static_cast<std::size_t>(row) * weight.row_bytes(),
                values.data() + row * weight.width(), static_cast<std::size_t>(weight.width()));
  return values;
}

std::vector<float> decode(const std::optional<TensorView>& weight, std::int64_t elements) {
  return weight ? decode(*weight) : std::vector<float>(static_cast<std::size_t>(elements), 0.0F);
}

}  // namespace reference

namespace {

class ReferencePlan final : public Plan {
 public:
  ReferencePlan(const graph::Graph& graph, NodeRange nodes, const graph::MemoryPlan& memory,
                HostDevice& device)
      : graph_(graph), memory_(memory) {
    std::size_t work_bytes = 0;
    for (std::size_t i = nodes.begin; i < nodes.end; ++i) {
      const graph::Value out = graph.nodes[i].out;
      const reference::Target target{
          out, graph.value(out).rows == graph::Rows::tokens ? memory.max_tokens : memory.max_outputs};
      kernels_.push_back(
          std::visit([&](const auto& op) { return reference::make_kernel(op, target); }, graph.nodes[i].op));
      work_bytes = std::max(work_bytes, kernels_.back().work_bytes);
    }
    work_ = device.allocate(work_bytes);
  }

  void run(const graph::Step& step, std::byte* scratch) override {
    const reference::Context context{graph_, memory_, step, scratch, work_->data()};
    for (const reference::Kernel& kernel : kernels_) kernel.run(context);
  }

  std::size_t private_bytes() const override { return work_->size(); }

 private:
  const graph::Graph& graph_;
  const graph::MemoryPlan& memory_;
  std::vector<reference::Kernel> kernels_;
  std::unique_ptr<Buffer> work_;
};

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(std::uint64_t memory_budget)
      : device_(HostDevice::create("reference:0", "plain loops, one thread", memory_budget)) {}

  std::string name() const override { return "reference"; }
  std::vector<DeviceInfo> devices() const override { return {device_->info()}; }
  std::unique_ptr<Buffer> allocate(int device, std::size_t bytes) override {
    if (device != 0) fail(ErrorCode::invalid_argument, "device reference:{} does not exist", device);
    return device_->allocate(bytes);
  }
  std::optional<std::string> declines(const graph::Graph&, const graph::Node&) const override { return {}; }
  std::unique_ptr<Plan> compile(const graph::Graph& graph, NodeRange nodes,
                                const graph::MemoryPlan& memory) override {
    return std::make_unique<ReferencePlan>(graph, nodes, memory, *device_);
  }

 private:
  std::shared_ptr<HostDevice> device_;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend(std::uint64_t memory_budget) {
  return std::make_unique<ReferenceBackend>(memory_budget);
}

}  // namespace quipu::backends
