// Counters, gauges and histograms in Prometheus' text format.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace quipu::server {

class Counter {
 public:
  void add(std::uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// Observations in buckets with fixed upper bounds. Thread-safe.
class Histogram {
 public:
  explicit Histogram(std::initializer_list<double> bounds);  ///< ascending; +Inf is added
  void observe(double value);
  struct Snapshot {
    std::vector<double> bounds;          ///< without +Inf
    std::vector<std::uint64_t> buckets;  ///< one more than bounds, each on its own (not summed up)
    double sum = 0;
    std::uint64_t count = 0;
  };
  Snapshot snapshot() const;

 private:
  std::vector<double> bounds_;
  mutable std::mutex mutex_;
  std::vector<std::uint64_t> buckets_;
  double sum_ = 0;
  std::uint64_t count_ = 0;
};

/// Builds one page of metrics. Label values are escaped; a family's lines must follow each other.
/// Format: https://prometheus.io/docs/instrumenting/exposition_formats/ (text, 0.0.4).
class MetricsText {
 public:
  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";
  using Labels = std::vector<std::pair<std::string_view, std::string>>;

  void family(std::string_view name, std::string_view type, std::string_view help);
  void sample(std::string_view name, double value, const Labels& labels = {});
  void counter(std::string_view name, std::string_view help, std::uint64_t value, const Labels& labels = {});
  void gauge(std::string_view name, std::string_view help, double value, const Labels& labels = {});
  void histogram(std::string_view name, const Histogram::Snapshot& snapshot, const Labels& labels = {});
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace quipu::server
