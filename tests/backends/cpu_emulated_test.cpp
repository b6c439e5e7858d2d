// The AMX and AVX-VNNI kernels give the bytes of the AVX-512 and AVX2 kernels, which the op tests hold to the
// reference; those of AMX for BF16 weights the bytes of docs/numerics.md, worked out value by value. What the
// machine lacks is emulated.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <span>
#include <vector>

#include "backends/cpu/kernels.hpp"
#include "backends/cpu_emulated.hpp"
#include "backends/tile_configuration.hpp"
#include "tensor/dtype.hpp"

#if defined(__x86_64__)
namespace quipu::backends {
namespace {

struct Case {
  std::size_t rows, n, k;
};

/// As two threads would take them.
void run_in_two_shares(const Kernels& kernels, int slot, LinearArgs a) {
  a.n_begin = 0;
  a.n_end = a.n / 2 / 16 * 16;
  if (a.n_end > 0) kernels.linear[slot](a);
  a.n_begin = a.n_end;
  a.n_end = a.n;
  kernels.linear[slot](a);
}

std::vector<float> run(const Kernels& kernels, int slot, const Case& c, const std::vector<std::byte>& weight,
                       std::size_t row_bytes, const std::vector<float>& x) {
  const std::size_t stride = quantized_stride(c.k);
  Aligned<std::int8_t> q(c.rows * stride), wide(c.rows * wide_stride(c.k));
  Aligned<float> d(c.rows * slabs(c.k)), fsum(c.rows * c.k / 32);
  Aligned<std::int32_t> sum32(c.rows * c.k / 32), sum16(c.rows * c.k / 16);
  QuantizedRows rows;
  rows.q = q.data;
  if (c.k % kSlab == 0) rows.wide = wide.data;
  rows.d = d.data;
  rows.fsum = fsum.data;
  rows.sum32 = sum32.data;
  rows.sum16 = sum16.data;
  rows.stride = stride;
  rows.width = c.k;
  rows = stored_for(rows, c.rows, kernels);
  for (std::size_t r = 0; r < c.rows; ++r) kernels.quantize(x.data() + r * c.k, rows, r);
  std::vector<float> y(c.rows * c.n, -7.0f), bias(c.n, 0.25f);
  Aligned<std::byte> scratch(linear_scratch(c.k));
  LinearArgs a;
  a.weight = reinterpret_cast<const std::uint8_t*>(weight.data());
  a.row_bytes = row_bytes;
  a.k = c.k;
  a.n = c.n;
  a.x = &rows;
  a.rows = c.rows;
  a.y = y.data();
  a.bias = bias.data();
  a.scratch = scratch.data;
  run_in_two_shares(kernels, slot, a);
  return y;
}

class CpuEmulatedLinear : public CpuEmulated {
 protected:
  void expect_same_bytes(const Kernels& one, const Kernels& other, std::span<const Case> small,
                         std::span<const Case> super) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::size_t compared = 0;
    for (const DTypeInfo& type : all_dtypes()) {
      const int slot = weight_slot(static_cast<std::uint32_t>(type.dtype));
      if (!is_quantized_slot(slot) || type.encode == nullptr) continue;
      for (const Case& c : type.block_size == 256 ? super : small) {
        const bool large = c.rows * c.n * c.k > 2'000'000;
        if (large && emulated() && type.dtype != DType::q4_1 && type.dtype != DType::q5_0) continue;
        std::vector<float> w(c.n * c.k), x(c.rows * c.k);
        for (float& v : w) v = normal(random) * 0.05f;
        for (float& v : x) v = normal(random);
        x[3] = 50.0f;
        const std::size_t row_bytes = c.k / type.block_size * type.block_bytes;
        // No byte to spare: sanitizers see a read past the end.
        std::vector<std::byte> blocks(c.n * row_bytes);
        type.encode(w.data(), blocks.data(), w.size());
        const std::vector<float> expected = run(one, slot, c, blocks, row_bytes, x);
        const std::vector<float> found = run(other, slot, c, blocks, row_bytes, x);
        ASSERT_EQ(0, std::memcmp(expected.data(), found.data(), expected.size() * sizeof(float)))
            << type.name << " rows " << c.rows << " n " << c.n << " k " << c.k;
        ++compared;
      }
    }
    EXPECT_GE(compared, 13 * super.size());
  }
};

TEST_F(CpuEmulatedLinear, AmxGivesTheBytesOfAvx512) {
  if (!ready(Isa::avx512, Isa::amx))
    GTEST_SKIP() << "SKIPPED: this machine lacks AVX-512 or its bfloat16, which the AMX kernels use";
  constexpr Case kSmall[] = {{8, 16, 64},   {16, 32, 576}, {17, 33, 96},   {31, 7, 128},
                             {33, 130, 32}, {70, 49, 160}, {512, 48, 576}, {48, 300, 2304}};
  constexpr Case kSuper[] = {{8, 16, 256}, {17, 33, 768}, {33, 130, 512}, {70, 49, 256}};
  expect_same_bytes(kernels_avx512(), kernels_amx(), kSmall, kSuper);
}

TEST_F(CpuEmulatedLinear, AvxVnniGivesTheBytesOfAvx2) {
  if (&kernels_avxvnni() == &kernels_baseline())
    GTEST_SKIP() << "SKIPPED: this build leaves the AVX-VNNI kernels out (src/backends/CMakeLists.txt)";
  if (!ready(Isa::avx2, Isa::avxvnni)) GTEST_SKIP() << "SKIPPED: this machine has no AVX2";
  // One row, a few, as many as take words: 1, 2 to 7, 8 and more.
  constexpr Case kSmall[] = {{1, 16, 64}, {1, 27, 96}, {2, 9, 64}, {7, 17, 32}, {8, 16, 64}, {21, 19, 96}};
  constexpr Case kSuper[] = {{1, 16, 256}, {3, 11, 512}, {8, 17, 256}, {13, 8, 512}};
  expect_same_bytes(kernels_avx2(), kernels_avxvnni(), kSmall, kSuper);
}

float bf16_up(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
/// To nearest, ties to even; no NaNs or infinities here.
std::uint16_t bf16_down(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// A row of weights times a row of activations by the words of docs/numerics.md.
float bf16_product(const std::uint16_t* w, const float* x, std::size_t k) {
  float sum = 0;
  for (std::size_t block = 0; block < k; block += 32)
    for (const bool low : {false, true}) {
      float chains[2] = {0, 0};
      for (std::size_t i = block; i < std::min(k, block + 32); ++i) {
        const float high = bf16_up(bf16_down(x[i]));
        const float plane = low ? bf16_up(bf16_down(x[i] - high)) : high;
        chains[i % 2] = std::fma(bf16_up(w[i]), plane, chains[i % 2]);
      }
      sum += chains[0] + chains[1];
    }
  return sum;
}

TEST_F(CpuEmulatedLinear, AmxOfBf16GivesTheBytesOfItsContract) {
  if (!ready(Isa::avx512, Isa::amx))
    GTEST_SKIP() << "SKIPPED: this machine lacks AVX-512 or its bfloat16, which the AMX kernels use";
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  for (const Case& c : {Case{1, 16, 64}, Case{1, 45, 40}, Case{2, 33, 576}, Case{7, 5, 8}, Case{5, 37, 64},
                        Case{16, 32, 96}, Case{17, 48, 96}, Case{33, 50, 72}, Case{130, 34, 64}}) {
    std::vector<std::uint16_t> w(c.n * c.k);
    std::vector<float> x(c.rows * c.k), y(c.rows * c.n, -7.0F), bias(c.n, 0.25F);
    for (std::uint16_t& v : w) v = bf16_down(normal(random) * 0.05F);
    for (float& v : x) v = normal(random);
    Aligned<std::byte> scratch(bf16_scratch(c.k));
    LinearArgs a;
    a.weight = reinterpret_cast<const std::uint8_t*>(w.data());
    a.row_bytes = c.k * 2;
    a.k = c.k;
    a.n = c.n;
    a.xf = x.data();
    a.rows = c.rows;
    a.y = y.data();
    a.bias = bias.data();
    a.scratch = scratch.data;
    run_in_two_shares(kernels_amx(), weight_slot(static_cast<std::uint32_t>(DType::bf16)), a);
    for (std::size_t r = 0; r < c.rows; ++r)
      for (std::size_t n = 0; n < c.n; ++n) {
        const float expected = bf16_product(w.data() + n * c.k, x.data() + r * c.k, c.k) + bias[n];
        ASSERT_EQ(std::bit_cast<std::uint32_t>(y[r * c.n + n]), std::bit_cast<std::uint32_t>(expected))
            << "rows " << c.rows << " n " << c.n << " k " << c.k << " at " << r << ", " << n;
      }
  }
}

/// With GCC 12 stores to a configuration get lost where nothing says that all of it is read.
TEST_F(CpuEmulated, TilesAreConfiguredByAllThatWasStored) {
  if (!ready(Isa::avx512, Isa::amx))
    GTEST_SKIP() << "SKIPPED: this machine has no AVX-512 with bfloat16, which the AMX kernels use";
  std::uint8_t expected[64] = {}, stored[64] = {};
  expected[0] = 1;        // palette
  expected[16 + 6] = 48;  // bytes of a row of tile 3
  expected[48 + 3] = 9;   // its rows
  test::configure_and_store(9, 48, stored);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(stored[i], expected[i]) << "byte " << i;
}

}  // namespace
}  // namespace quipu::backends
#endif
