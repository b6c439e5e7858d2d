// Linears whose blocks have integer scales: the largest integers that a block can hold, and one checksum of
// all formats for every processor.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/checksum.hpp"
#include "cpu_backends.hpp"
#include "harness.hpp"

namespace quipu::test {
namespace {

using graph::Builder;
using graph::Value;

constexpr std::int32_t kRows = 40;  // all kinds of kernels: one row, a few, many

/// Where a format keeps its halves and the scales of its sub-blocks.
struct Layout {
  DType dtype;
  std::vector<std::size_t> halves;
  std::size_t scales, scale_bytes;
};
const Layout kLayouts[] = {{DType::q2_k, {80, 82}, 0, 16}, {DType::q3_k, {108}, 96, 12},
                           {DType::q4_k, {0, 2}, 4, 12},   {DType::q5_k, {0, 2}, 4, 12},
                           {DType::q6_k, {208}, 192, 16},  {DType::iq4_xs, {0}, 2, 6}};

/// Rows of two super-blocks of the same bytes, with factors of 1.
Weight same_bytes(const Layout& layout, int codes, int scales) {
  constexpr std::int64_t kWidth = 512, kColumns = 33;
  const std::size_t block = info(layout.dtype).block_bytes;
  std::vector<std::byte> bytes(block * 2 * kColumns, static_cast<std::byte>(codes));
  for (std::size_t at = 0; at < bytes.size(); at += block) {
    std::memset(bytes.data() + at + layout.scales, scales, layout.scale_bytes);
    for (const std::size_t half : layout.halves) {
      bytes[at + half] = std::byte{0};
      bytes[at + half + 1] = std::byte{0x3c};
    }
  }
  Weight weight = encode_weight(layout.dtype, kWidth, kColumns,
                                std::vector<float>(static_cast<std::size_t>(kWidth * kColumns), 0.0F));
  weight.bytes = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  weight.view.data = weight.bytes->data();
  return weight;
}

OpCase linear_of(const Weight& weight, Table x) {
  return {{std::move(x)},
          [weight](Builder& b, std::span<const Value> in) { return b.linear(in[0], weight.view, {}); }};
}

/// Activations of 1 and -1, which are the largest integers: row 0 all ones, so that sums reach 2^31 less one
/// part in 250.
Table ones(std::int64_t width) {
  Table table{width, {}};
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t i = 0; i < width; ++i)
      table.values.push_back(row % 3 != 0 && i % (row + 1) == 1 ? -1.0F : 1.0F);
  return table;
}

TEST(CpuSuperBlocks, LargestSumsAreExactOnEveryIsa) {
  for (const Layout& layout : kLayouts)
    for (const int codes : {0x00, 0xff, 0x80, 0x7f})
      for (const int scales : {0x00, 0xff, 0x80, 0x7f}) {
        const Weight weight = same_bytes(layout, codes, scales);
        const OpCase op = linear_of(weight, ones(512));
        const std::vector<float> want = run_rows(op, {backends::make_reference_backend()}, kRows);
        double largest = 0;
        for (const float w : weight.decode_row(0))
          largest = std::max(largest, std::abs(static_cast<double>(w)));
        // Some roundings of sums of up to 512 weights, which cancel in formats with minima.
        const double bound = 512 * (largest + 2 * 63 * 32) * 0x1p-22;
        for (const CpuVariant& cpu : cpu_by_isa()) {
          OpProgram program(op, {cpu.backend}, kRows);
          for (const std::int32_t rows : {1, 3, 8, kRows}) {
            const BatchSequence part = whole_sequence(rows, {0, 1});
            const std::vector<float> got = program.run({&part, 1});
            for (std::size_t i = 0; i < got.size(); ++i)
              ASSERT_NEAR(got[i], want[i], bound)
                  << to_string(layout.dtype) << " of " << codes << ", scales " << scales << ", " << cpu.name
                  << ", " << rows << " rows, " << i;
          }
        }
      }
}

// As CpuPlan.GraphsHaveTheSameBytesOnEveryArchitecture, for each format.
TEST(CpuSuperBlocks, LinearsOfAllFormatsHaveTheSameBytesOnEveryArchitecture) {
  constexpr std::uint64_t kGolden = 16669156671633258455U;
  std::vector<float> all;
  for (const DType dtype : weight_dtypes()) {
    if (info(dtype).block_size == 1) continue;
    const OpCase op = linear_of(random_weight(dtype, 768, 21, 3), random_table(kRows, 768, 4));
    OpProgram program(op, {cpu_by_isa().back().backend}, kRows);
    for (const std::int32_t rows : {1, 5, kRows}) {
      const BatchSequence part = whole_sequence(rows, {0, 1});
      const std::vector<float> got = program.run({&part, 1});
      all.insert(all.end(), got.begin(), got.end());
    }
  }
  EXPECT_EQ(xxh64(std::as_bytes(std::span(all))), kGolden);
}

}  // namespace
}  // namespace quipu::test
