// For tests of kernels that the machine may be unable to run: aligned memory, and instructions emulated where
// they are missing.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>

#include "backends/instruction_emulation.hpp"
#include "core/cpu_features.hpp"

namespace quipu::backends {

template <class T>
struct Aligned {
  explicit Aligned(std::size_t n)
      : data(static_cast<T*>(std::aligned_alloc(64, (n * sizeof(T) + 127) / 64 * 64))) {
    std::memset(static_cast<void*>(data), 0, n * sizeof(T));
  }
  ~Aligned() { std::free(data); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  T* data;
};

/// Instructions of the machine, or emulated ones.
class CpuEmulated : public testing::Test {
 protected:
  /// Skips where the machine has not even `needed`; emulates what is behind it up to `tested`.
  bool ready(Isa needed, Isa tested) {
    const std::span<const Isa> here = available_isas();
    const auto has = [&](Isa isa) { return std::find(here.begin(), here.end(), isa) != here.end(); };
    if (!has(needed)) return false;
#if defined(__x86_64__)
    // Processors with tiles convert to bfloat16 by AVX-512, which is not emulated.
    if (tested == Isa::amx && !__builtin_cpu_supports("avx512bf16")) return false;
#endif
    if (!has(tested)) emulation_.emplace();
    return true;
  }
  void TearDown() override {
    if (!emulated()) return;
    EXPECT_GT(InstructionEmulation::instructions(), before_) << "nothing was emulated";
  }
  bool emulated() const { return emulation_.has_value(); }

 private:
  std::optional<InstructionEmulation> emulation_;
  long long before_ = InstructionEmulation::instructions();
};

}  // namespace quipu::backends
