// Host memory with a budget and nothing else: enough of a backend for a page pool.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/backend.hpp"
#include "core/error.hpp"

namespace quipu::test {

class FakeBackend : public backends::Backend {
 public:
  explicit FakeBackend(std::uint64_t budget = UINT64_MAX) : budget_(budget) {}
  std::string name() const override { return "fake"; }
  std::vector<backends::DeviceInfo> devices() const override { return {{"fake:0", "", budget_, 0}}; }
  std::unique_ptr<backends::Buffer> allocate(int, std::size_t bytes) override {
    if (bytes > budget_) fail(ErrorCode::out_of_memory, "fake:0 has {} of {} bytes", budget_, bytes);
    return std::make_unique<HostBuffer>(bytes);
  }
  std::optional<std::string> declines(const graph::Graph&, const graph::Node&) const override {
    return "fake";
  }
  std::unique_ptr<backends::Plan> compile(const graph::Graph&, backends::NodeRange,
                                          const graph::MemoryPlan&) override {
    return nullptr;
  }

 private:
  struct HostBuffer : backends::Buffer {
    explicit HostBuffer(std::size_t bytes) : bytes_(bytes) {}
    std::byte* data() override { return bytes_.data(); }
    std::size_t size() const override { return bytes_.size(); }
    std::vector<std::byte> bytes_;
  };
  std::uint64_t budget_;
};

}  // namespace quipu::test
