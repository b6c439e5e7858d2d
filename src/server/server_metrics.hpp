// The page behind /metrics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "server/models.hpp"

namespace quipu::server {

/// Answers by status.
class HttpMetrics {
 public:
  void count(int status) {
    const std::lock_guard lock(mutex_);
    ++by_status_[status];
  }
  std::map<int, std::uint64_t> by_status() const {
    const std::lock_guard lock(mutex_);
    return by_status_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<int, std::uint64_t> by_status_;
};

/// Names and meanings: docs/server.md.
std::string server_metrics_text(const Models& models, const HttpMetrics& http, std::size_t connections,
                                const std::string& version);

}  // namespace quipu::server
