// A few threads for what takes longer than an I/O thread may: templates, tokenizing, JSON.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace quipu::server {

class Workers {
 public:
  explicit Workers(int threads);
  ~Workers();  ///< drops what has not begun, and joins
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Runs `task` soon. What it throws is logged.
  void post(std::function<void()> task);

 private:
  void loop();
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quipu::server
