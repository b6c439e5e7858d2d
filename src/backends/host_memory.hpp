// Memory of the machine itself, given out against a budget: what host backends allocate from.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backends/backend.hpp"

namespace quipu::backends {

/// A device whose memory is the host's. Thread-safe.
class HostDevice : public std::enable_shared_from_this<HostDevice> {
 public:
  /// `memory_budget` in bytes; UINT64_MAX: no limit but the machine's.
  static std::shared_ptr<HostDevice> create(std::string name, std::string description,
                                            std::uint64_t memory_budget);

  /// `bytes` zeroed bytes, aligned to 64, to 2 MiB from 16 MiB on (huge pages behind the first 2 MiB, where
  /// the system has them). Pages cost memory only once they are touched, but the budget is charged in full.
  /// The device lives on while its buffers do. Throws `Error` (out_of_memory) that names the device, the
  /// bytes asked and those left.
  std::unique_ptr<Buffer> allocate(std::size_t bytes);
  DeviceInfo info() const;

 private:
  friend class HostBuffer;
  HostDevice(std::string name, std::string description, std::uint64_t memory_budget);
  void give_back(std::size_t bytes) noexcept;

  std::string name_, description_;
  std::uint64_t budget_;
  std::atomic<std::uint64_t> used_{0};
};

}  // namespace quipu::backends
