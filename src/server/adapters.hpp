// The adapters of a served model, and how strongly requests use them.
#pragma once

#include <boost/json/fwd.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/request_fields.hpp"

namespace quipu::server {

/// Scales of requests that name none: set at the start, changed by /lora-adapters. Any thread.
class AdapterScales {
 public:
  /// One path and one scale for each adapter, by id; before the model is served.
  void reset(std::vector<std::string> paths, std::vector<float> scales);

  const std::vector<std::string>& paths() const { return paths_; }
  std::vector<float> scales() const;
  void set(std::vector<float> scales);
  /// [{"id", "scale"}] as a scale for each adapter, 0 for those that it leaves out; `path` names the list in
  /// messages. Throws a 400: another shape, an id there is not or that stands twice, a scale that is no
  /// number.
  std::vector<float> read(const boost::json::array& list, const std::string& path) const;

 private:
  std::vector<std::string> paths_;
  mutable std::mutex mutex_;
  std::vector<float> scales_;  // guarded
};

}  // namespace quipu::server
