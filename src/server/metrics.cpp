#include "server/metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace quipu::server {

namespace {

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

std::string escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

Histogram::Histogram(std::initializer_list<double> bounds) : bounds_(bounds), buckets_(bounds.size() + 1) {}

void Histogram::observe(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  const std::lock_guard lock(mutex_);
  ++buckets_[static_cast<std::size_t>(bucket)];
  sum_ += value;
  ++count_;
}

Histogram::Snapshot Histogram::snapshot() const {
  const std::lock_guard lock(mutex_);
  return {bounds_, buckets_, sum_, count_};
}

void MetricsText::family(std::string_view name, std::string_view type, std::string_view help) {
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void MetricsText::sample(std::string_view name, double value, const Labels& labels) {
  text_ += name;
  for (std::size_t i = 0; i < labels.size(); ++i)
    text_ += fmt::format("{}{}=\"{}\"", i == 0 ? "{" : ",", labels[i].first, escaped(labels[i].second));
  if (!labels.empty()) text_ += "}";
  text_ += " " + number(value) + "\n";
}

void MetricsText::counter(std::string_view name, std::string_view help, std::uint64_t value,
                          const Labels& labels) {
  family(name, "counter", help);
  sample(name, static_cast<double>(value), labels);
}

void MetricsText::gauge(std::string_view name, std::string_view help, double value, const Labels& labels) {
  family(name, "gauge", help);
  sample(name, value, labels);
}

void MetricsText::histogram(std::string_view name, const Histogram::Snapshot& snapshot,
                            const Labels& labels) {
  std::uint64_t below = 0;
  const std::string bucket = fmt::format("{}_bucket", name);
  for (std::size_t i = 0; i < snapshot.buckets.size(); ++i) {
    below += snapshot.buckets[i];
    Labels with = labels;
    with.emplace_back("le", i < snapshot.bounds.size() ? number(snapshot.bounds[i]) : "+Inf");
    sample(bucket, static_cast<double>(below), with);
  }
  sample(fmt::format("{}_sum", name), snapshot.sum, labels);
  sample(fmt::format("{}_count", name), static_cast<double>(snapshot.count), labels);
}

}  // namespace quipu::server
