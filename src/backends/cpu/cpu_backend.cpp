// The CPU backend: virtual devices with budgets, kernels of the selected instruction set.
#include "backends/backend.hpp"
#include "backends/cpu/cpu_plan.hpp"
#include "backends/host_memory.hpp"
#include "core/cpu_features.hpp"
#include "core/error.hpp"

namespace quipu::backends {

const Kernels& kernels_for(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::amx) return kernels_amx();
  if (isa == Isa::avx512) return kernels_avx512();
  if (isa == Isa::avxvnni) return kernels_avxvnni();
  if (isa == Isa::avx2) return kernels_avx2();
#elif defined(__aarch64__)
  if (isa == Isa::i8mm) return kernels_i8mm();
  if (isa == Isa::neon) return kernels_neon();
#endif
  static_cast<void>(isa);
  return kernels_baseline();
}

namespace {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(CpuOptions options)
      : kernels_(kernels_for(selected_isa())), threads_(std::move(options.threads)) {
    if (!threads_) threads_ = std::make_shared<ThreadPool>(default_threads().count);
    if (options.device_budgets.empty())
      fail(ErrorCode::invalid_argument,
           "the CPU backend needs the memory budget of at least one device; found none");
    for (std::size_t i = 0; i < options.device_budgets.size(); ++i)
      devices_.push_back(HostDevice::create(fmt::format("cpu:{}", i),
                                            fmt::format("{} kernels, {} thread{}", kernels_.name,
                                                        threads_->size(), threads_->size() == 1 ? "" : "s"),
                                            options.device_budgets[i]));
  }

  std::string name() const override { return "cpu"; }

  std::vector<DeviceInfo> devices() const override {
    std::vector<DeviceInfo> infos;
    for (const std::shared_ptr<HostDevice>& device : devices_) infos.push_back(device->info());
    return infos;
  }

  std::unique_ptr<Buffer> allocate(int device, std::size_t bytes) override {
    if (device < 0 || static_cast<std::size_t>(device) >= devices_.size())
      fail(ErrorCode::invalid_argument, "CPU device {} does not exist; there are {}", device,
           devices_.size());
    return devices_[static_cast<std::size_t>(device)]->allocate(bytes);
  }

  std::optional<std::string> declines(const graph::Graph& graph, const graph::Node& node) const override {
    return cpu::decline_reason(graph, node);
  }

  std::unique_ptr<Plan> compile(const graph::Graph& graph, NodeRange nodes,
                                const graph::MemoryPlan& memory) override {
    return cpu::compile_plan(graph, nodes, memory, kernels_, threads_, *this);
  }

 private:
  const Kernels& kernels_;
  std::shared_ptr<ThreadPool> threads_;
  std::vector<std::shared_ptr<HostDevice>> devices_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(CpuOptions options) {
  return std::make_unique<CpuBackend>(std::move(options));
}

}  // namespace quipu::backends
