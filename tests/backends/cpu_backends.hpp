// The CPU backend once for every instruction set of this machine, and with several numbers of threads.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.hpp"
#include "core/cpu_features.hpp"
#include "core/threads.hpp"
#include "harness.hpp"

namespace quipu::test {

struct CpuVariant {
  std::string name;  ///< "avx2, 3 threads"
  std::shared_ptr<backends::Backend> backend;
  bool tiles = false;  ///< BF16 weights have an arithmetic of their own (docs/numerics.md)
};

/// `speeds`: of threads that do not get equal shares.
inline CpuVariant make_cpu(Isa isa, int threads, std::vector<double> speeds = {}) {
  const char* before = std::getenv("QUIPU_ISA");
  const std::string saved = before != nullptr ? before : "";
  ::setenv("QUIPU_ISA", std::string(to_string(isa)).c_str(), 1);
  backends::CpuOptions options;
  const char* kind = speeds.empty() ? " threads" : " unequal threads";
  options.threads = std::make_shared<ThreadPool>(threads, std::move(speeds));
  CpuVariant variant{std::string(to_string(isa)) + ", " + std::to_string(threads) + kind,
                     backends::make_cpu_backend(std::move(options)), isa == Isa::amx};
  if (before != nullptr)
    ::setenv("QUIPU_ISA", saved.c_str(), 1);
  else
    ::unsetenv("QUIPU_ISA");
  return variant;
}

/// Every instruction set with one thread, made once.
inline const std::vector<CpuVariant>& cpu_by_isa() {
  static const std::vector<CpuVariant> variants = [] {
    std::vector<CpuVariant> made;
    for (const Isa isa : available_isas()) made.push_back(make_cpu(isa, 1));
    return made;
  }();
  return variants;
}

/// The best instruction set with 1 to 4 threads, and with unequal ones, made once.
inline const std::vector<CpuVariant>& cpu_by_threads() {
  static const std::vector<CpuVariant> variants = [] {
    std::vector<CpuVariant> made;
    for (int threads = 1; threads <= 4; ++threads) made.push_back(make_cpu(detect_isa(), threads));
    made.push_back(make_cpu(detect_isa(), 3, {1, 0.2, 3}));
    return made;
  }();
  return variants;
}

/// Both lists.
inline std::vector<CpuVariant> all_cpus() {
  std::vector<CpuVariant> all = cpu_by_isa();
  all.insert(all.end(), cpu_by_threads().begin() + 1, cpu_by_threads().end());
  return all;
}

/// Of attention over random rows, whose scores reach 100. Rounding: (d / 16 + 6) steps of 2^-24 on such a
/// sum, times the scale, moves weights by about as much in relation; values reach 8. Where keys are
/// quantised, a query is within 2^-12 of its largest element, which moves such scores, and weights in
/// relation, by some 2^-6 (cpu_quantised_attention_test.cpp is the strict one).
inline Tolerance attention_tolerance(bool quantised = false) { return {quantised ? 5e-2 : 1e-4, 1e-5}; }

}  // namespace quipu::test
