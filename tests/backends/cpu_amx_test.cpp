// The AMX kernels give the bytes of the AVX-512 kernels, which the op tests hold to the reference.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "backends/cpu/kernels.hpp"
#include "core/cpu_features.hpp"
#include "tensor/dtype.hpp"

#if defined(__x86_64__)
namespace quipu::backends {
namespace {

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

struct Case {
  std::size_t rows, n, k;
};

std::vector<float> run(const Kernels& kernels, int slot, const Case& c, const std::vector<std::byte>& weight,
                       std::size_t row_bytes, const std::vector<float>& x) {
  const std::size_t stride = quantized_stride(c.k);
  Aligned<std::int8_t> q(c.rows * stride);
  Aligned<float> d(c.rows * c.k / 32), dsum(c.rows * c.k / 32);
  Aligned<std::int32_t> sum32(c.rows * c.k / 32), sum16(c.rows * c.k / 16);
  QuantizedRows rows;
  rows.q = q.data;
  rows.d = d.data;
  rows.dsum = dsum.data;
  rows.sum32 = sum32.data;
  rows.sum16 = sum16.data;
  rows.stride = stride;
  rows.width = c.k;
  rows.words = c.rows >= kernels.word_rows;
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
  // Two shares, as two threads would take them.
  a.n_begin = 0;
  a.n_end = c.n / 2 / 16 * 16;
  if (a.n_end > 0) kernels.linear[slot](a);
  a.n_begin = a.n_end;
  a.n_end = c.n;
  kernels.linear[slot](a);
  return y;
}

TEST(CpuAmx, LinearGivesTheBytesOfTheAvx512Kernels) {
  if (detect_isa() < Isa::amx) GTEST_SKIP() << "SKIPPED: this machine has no AMX";
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const Case small[] = {{8, 16, 64},   {16, 32, 576}, {17, 33, 96},   {31, 7, 128},
                        {33, 130, 32}, {70, 49, 160}, {512, 48, 576}, {48, 300, 2304}};
  const Case super[] = {{8, 16, 256}, {17, 33, 768}, {33, 130, 512}, {70, 49, 256}};
  int compared = 0;
  for (const DTypeInfo& type : all_dtypes()) {
    const int slot = weight_slot(static_cast<std::uint32_t>(type.dtype));
    if (slot < 3 || type.encode == nullptr) continue;
    for (const Case& c :
         type.block_size == 256 ? std::span<const Case>(super) : std::span<const Case>(small)) {
      std::vector<float> w(c.n * c.k), x(c.rows * c.k);
      for (float& v : w) v = normal(random) * 0.05f;
      for (float& v : x) v = normal(random);
      x[3] = 50.0f;
      const std::size_t row_bytes = c.k / type.block_size * type.block_bytes;
      std::vector<std::byte> blocks(c.n *
                                    row_bytes);  // no byte to spare: the sanitizers see a read past the end
      type.encode(w.data(), blocks.data(), w.size());
      const std::vector<float> expected = run(kernels_avx512(), slot, c, blocks, row_bytes, x);
      const std::vector<float> found = run(kernels_amx(), slot, c, blocks, row_bytes, x);
      ASSERT_EQ(0, std::memcmp(expected.data(), found.data(), expected.size() * sizeof(float)))
          << type.name << " rows " << c.rows << " n " << c.n << " k " << c.k;
      ++compared;
    }
  }
  EXPECT_GE(compared, 13 * 4);
}

}  // namespace
}  // namespace quipu::backends
#endif
