// Attention of the CPU backend against the reference: batches of sequences over scattered pages, every cache
// dtype.
#include <gtest/gtest.h>

#include <cmath>

#include "cpu_backends.hpp"
#include "harness.hpp"

namespace quipu::test {
namespace {

using graph::Builder;
using graph::Value;

struct Spec {
  std::string name;
  std::int64_t heads = 4, kv_heads = 2, head_dim = 32, v_dim = 32;
  DType k = DType::f16, v = DType::f16;
  std::int64_t window = 0;
  float soft_cap = 0, alibi = 0;
  bool sinks = false;
};

constexpr std::int64_t kTable = 211;  // rows of the input tables; a prime, so that positions meet all of them

OpCase attention_case(const Spec& s) {
  std::optional<TensorView> sinks;
  static std::vector<Weight> kept;  // weights must outlive the programs
  if (s.sinks) {
    kept.push_back(random_weight(DType::f32, s.heads, 1, 77));
    sinks = kept.back().view;
  }
  return {{random_table(kTable, s.heads * s.head_dim, 1), random_table(kTable, s.kv_heads * s.head_dim, 2),
           random_table(kTable, s.kv_heads * s.v_dim, 3)},
          [s, sinks](Builder& b, std::span<const Value> in) {
            return b.attention({.q = in[0],
                                .k = in[1],
                                .v = in[2],
                                .layer = 0,
                                .heads = s.heads,
                                .kv_heads = s.kv_heads,
                                .head_dim = s.head_dim,
                                .v_dim = s.v_dim,
                                .scale = 1 / std::sqrt(static_cast<float>(s.head_dim)),
                                .window = s.window,
                                .soft_cap = s.soft_cap,
                                .sinks = sinks,
                                .alibi_max_bias = s.alibi});
          }};
}

std::vector<Spec> specs() {
  std::vector<Spec> all{
      {.name = "plain"},
      {.name = "all heads their own", .heads = 3, .kv_heads = 3, .head_dim = 9, .v_dim = 9},
      {.name = "one key-value head", .heads = 5, .kv_heads = 1, .head_dim = 12, .v_dim = 12},
      {.name = "values wider than keys", .heads = 6, .kv_heads = 2, .head_dim = 16, .v_dim = 80},
      {.name = "values narrower", .head_dim = 64, .v_dim = 7},
      {.name = "window below a page", .window = 5},
      {.name = "window over a page", .window = 70},
      {.name = "window of one", .window = 1},
      {.name = "soft cap", .soft_cap = 2},
      {.name = "sinks", .sinks = true},
      {.name = "alibi", .alibi = 8},
      {.name = "alibi of six heads", .heads = 6, .kv_heads = 3, .alibi = 8},
      {.name = "mixed dtypes", .k = DType::q8_0, .v = DType::bf16},
      {.name = "mixed the other way", .k = DType::f32, .v = DType::q8_0},
      {.name = "all at once",
       .heads = 6,
       .kv_heads = 2,
       .window = 40,
       .soft_cap = 3,
       .alibi = 4,
       .sinks = true},
  };
  for (const DType dtype : graph::kCacheDtypes)
    all.push_back({.name = std::string(to_string(dtype)), .v_dim = 64, .k = dtype, .v = dtype});
  return all;
}

constexpr std::uint32_t kPages = 24;
TestCache make_cache(const Spec& s) { return {s.k, s.v, s.kv_heads, s.head_dim, s.v_dim, kPages}; }

/// `rows` tokens of sequence `id` from position `first` on.
BatchSequence rows_of(int id, std::int32_t first, std::int32_t rows, std::vector<std::uint32_t> pages) {
  BatchSequence sequence{{}, first, std::move(pages)};
  for (std::int32_t i = 0; i < rows; ++i)
    sequence.tokens.push_back(static_cast<std::int32_t>((first + i + 57 * id) % kTable));
  return sequence;
}

using Schedule = std::vector<std::vector<BatchSequence>>;

/// Borders of pages crossed in prefill and in single steps, sequences that come and go, scattered pages.
Schedule busy_schedule() {
  const std::vector<std::uint32_t> a{9, 2, 17}, b{3, 14}, c{0};
  return {{rows_of(0, 0, 62, a)},
          {rows_of(0, 62, 1, a)},
          {rows_of(0, 63, 3, a), rows_of(1, 0, 17, b), rows_of(2, 0, 1, c)},
          {rows_of(1, 17, 70, b), rows_of(0, 66, 1, a)},
          {rows_of(2, 1, 1, c), rows_of(0, 67, 1, a), rows_of(1, 87, 1, b)},
          {rows_of(0, 68, 64, a)},
          {rows_of(1, 88, 1, b)},
          {rows_of(2, 2, 1, c)}};
}

TEST(CpuAttention, IsLikeTheReferenceInBatchesOverScatteredPages) {
  for (const Spec& s : specs()) {
    const OpCase op = attention_case(s);
    std::vector<std::vector<float>> first;
    for (const CpuVariant& cpu : all_cpus()) {
      OpProgram reference(op, {backends::make_reference_backend()}, 90), program(op, {cpu.backend}, 90);
      ASSERT_EQ(program.program().placement()[3], 0U);
      TestCache expected = make_cache(s), cache = make_cache(s);
      std::size_t index = 0;
      for (const std::vector<BatchSequence>& batch : busy_schedule()) {
        const std::vector<float> want = reference.run(batch, &expected), got = program.run(batch, &cache);
        const bool quantised = info(s.k).block_size > 1 || info(s.v).block_size > 1;
        EXPECT_EQ(difference(got, want, attention_tolerance(quantised)), "")
            << s.name << ", step " << index << ", " << cpu.name;
        if (index == first.size()) first.push_back(got);
        EXPECT_EQ(byte_difference(got, first[index]), "") << s.name << ", step " << index << ", " << cpu.name;
        ++index;
      }
      // The same bytes in the cache, and not one byte written that belongs to nobody.
      EXPECT_EQ(cache.k_bytes(), expected.k_bytes()) << s.name << ", " << cpu.name;
      EXPECT_EQ(cache.v_bytes(), expected.v_bytes()) << s.name << ", " << cpu.name;
    }
  }
}

TEST(CpuAttention, IsLikeTheReferenceOverLongSequences) {
  // Past 512 positions a sequence is cut into chunks; a single row shares them among threads.
  std::vector<std::uint32_t> pages;
  for (std::uint32_t i = 0; i < 18; ++i) pages.push_back((i * 7 + 3) % kPages);
  Schedule schedule;
  for (std::int32_t first = 0; first < 1080; first += 120)
    schedule.push_back({rows_of(0, first, 120, pages)});
  for (std::int32_t i = 0; i < 3; ++i) schedule.push_back({rows_of(0, 1080 + i, 1, pages)});
  for (const Spec& s : {Spec{.name = "plain"}, Spec{.name = "window", .window = 600},
                        Spec{.name = "sinks and alibi", .alibi = 8, .sinks = true},
                        Spec{.name = "five heads", .heads = 5, .kv_heads = 1, .head_dim = 12, .v_dim = 12}}) {
    const OpCase op = attention_case(s);
    OpProgram reference(op, {backends::make_reference_backend()}, 120);
    TestCache expected = make_cache(s);
    std::vector<std::vector<float>> wants;
    for (const std::vector<BatchSequence>& batch : schedule) wants.push_back(reference.run(batch, &expected));
    std::vector<float> first;
    for (const CpuVariant& cpu :
         {cpu_by_isa().front(), cpu_by_isa().back(), cpu_by_threads()[1], cpu_by_threads()[2]}) {
      OpProgram program(op, {cpu.backend}, 120);
      TestCache cache = make_cache(s);
      std::vector<float> last;
      for (std::size_t i = 0; i < schedule.size(); ++i) {
        last = program.run(schedule[i], &cache);
        EXPECT_EQ(difference(last, wants[i], attention_tolerance()), "")
            << s.name << ", step " << i << ", " << cpu.name;
      }
      if (first.empty()) first = last;
      EXPECT_EQ(byte_difference(last, first), "") << s.name << ", " << cpu.name;
    }
  }
}

TEST(CpuAttention, RowsDoNotDependOnChunkingCompanyOrPageNumbers) {
  for (const Spec& s : specs()) {
    const OpCase op = attention_case(s);
    for (const CpuVariant& cpu : {cpu_by_isa().back(), cpu_by_threads().back()}) {
      OpProgram program(op, {cpu.backend}, 400);
      const auto in_chunks = [&](std::int32_t chunk, std::vector<std::uint32_t> pages, bool company) {
        TestCache cache = make_cache(s);
        std::vector<float> rows;
        for (std::int32_t first = 0; first < 140; first += chunk) {
          std::vector<BatchSequence> batch;
          if (company) batch.push_back(rows_of(1, 2 * first, 2 * chunk, {20, 21, 22, 23, 19}));
          batch.push_back(rows_of(0, first, chunk, pages));
          if (company) batch.push_back(rows_of(2, first, chunk, {15, 16, 18}));
          const std::vector<float> got = program.run(batch, &cache);
          const auto width = static_cast<std::size_t>(program.width());
          const std::size_t begin = company ? 2 * static_cast<std::size_t>(chunk) * width : 0;
          rows.insert(
              rows.end(), got.begin() + static_cast<std::ptrdiff_t>(begin),
              got.begin() + static_cast<std::ptrdiff_t>(begin + static_cast<std::size_t>(chunk) * width));
        }
        return rows;
      };
      const std::vector<float> want = in_chunks(140, {0, 1, 2}, false);
      EXPECT_EQ(byte_difference(in_chunks(1, {4, 9, 0}, false), want), "") << s.name << ", one by one";
      EXPECT_EQ(byte_difference(in_chunks(5, {8, 3, 11}, false), want), "") << s.name << ", five by five";
      EXPECT_EQ(byte_difference(in_chunks(35, {13, 1, 8}, true), want), "") << s.name << ", in company";
    }
  }
}

}  // namespace
}  // namespace quipu::test
