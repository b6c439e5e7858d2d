// Attention that sees a run of positions, an encoder's or a decoder's own, or adds to scores by distance; and
// layers that read what another one stored. The reference against numpy (tools/goldens/make_op_goldens.py),
// the CPU backend against both.
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "cpu_backends.hpp"
#include "graph/distance_bias.hpp"
#include "harness.hpp"
#include "op_goldens.hpp"

namespace quipu::test {
namespace {

using graph::Builder;
using graph::Value;
using Inputs = std::span<const Value>;

struct Seen {
  std::string name, key;
  graph::Attention op{};
  std::int32_t positions = 0, encoded = 0;
  std::vector<float> want;
};

std::vector<Seen> seen_cases() {
  std::vector<Seen> all;
  for (const std::string& name : OpGoldens::golden().metadata().try_strings("seen.cases")->strings()) {
    Seen c{.name = name, .key = "seen." + name + ".", .want = {}};
    const auto number = [&](const char* what) { return OpGoldens::number(c.key + what); };
    c.op.heads = number("heads");
    c.op.kv_heads = number("kv_heads");
    c.op.head_dim = c.op.v_dim = number("head_dim");
    c.op.scale = 0.5F;
    c.op.chunk = number("chunk");
    c.op.max_distance = number("most");
    c.op.causal = OpGoldens::golden().metadata().get_bool(c.key + "causal");
    if (const TensorView* bias = OpGoldens::golden().find_tensor(c.key + "distance_bias"))
      c.op.distance_bias = *bias;
    c.encoded = static_cast<std::int32_t>(number("encoded"));
    if (c.encoded > 0) c.op.reach = c.op.causal ? graph::Reach::decoded : graph::Reach::encoded;
    c.op.stored = c.op.reach == graph::Reach::encoded;
    c.positions = static_cast<std::int32_t>(OpGoldens::table(c.key + "q").rows());
    c.want = OpGoldens::table(c.key + "y").values;
    all.push_back(c);
  }
  return all;
}

OpCase op_case(const Seen& c) {
  return {{OpGoldens::table(c.key + "q"), OpGoldens::table(c.key + "k"), OpGoldens::table(c.key + "v")},
          [op = c.op](Builder& g, Inputs in) mutable {
            op.q = in[0];
            if (!op.stored) {
              op.k = in[1];
              op.v = in[2];
            }
            return g.attention(op);
          }};
}

/// The rows behind the encoder's, at most `chunk` a step; the encoder's keys and values by a graph of its
/// own.
std::vector<float> run_case(const Seen& c, const std::shared_ptr<backends::Backend>& backend,
                            std::int32_t chunk) {
  TestCache memory(DType::f32, DType::f32, c.op.kv_heads, c.op.head_dim, c.op.v_dim, 8);
  const std::vector<std::uint32_t> pages{4, 1, 6, 3, 0};
  const auto part = [&](std::int32_t first, std::int32_t count, std::int32_t encoded) {
    BatchSequence sequence{{}, first, pages, {}, encoded};
    for (std::int32_t t = first; t < first + count; ++t) sequence.tokens.push_back(t);
    return sequence;
  };
  if (c.encoded > 0) {
    OpProgram encoder({op_case(c).inputs,
                       [&](Builder& g, Inputs in) {
                         return g.store_kv({in[1], in[2], 0, c.op.kv_heads, c.op.head_dim, c.op.v_dim});
                       }},
                      {backend}, c.encoded);
    const BatchSequence sequence = part(0, c.encoded, 0);
    encoder.run({&sequence, 1}, &memory, {});
  }
  OpProgram program(op_case(c), {backend}, c.positions);
  std::vector<float> all;
  for (std::int32_t first = c.encoded; first < c.positions; first += chunk) {
    const BatchSequence sequence = part(first, std::min(chunk, c.positions - first), c.encoded);
    const std::vector<float> rows = program.run({&sequence, 1}, &memory);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

TEST(SeenPositions, OfTheReferenceAreThoseOfNumpy) {
  for (const Seen& c : seen_cases())
    EXPECT_EQ(difference(run_case(c, backends::make_reference_backend(), c.positions), c.want, {4e-7, 4e-7}),
              "")
        << c.name;
}

TEST(SeenPositions, OfTheCpuAreThoseOfNumpyAndTheSameBytesInAnyChunks) {
  for (const Seen& c : seen_cases()) {
    std::vector<float> first;
    for (const CpuVariant& cpu : all_cpus()) {
      const std::vector<float> got = run_case(c, cpu.backend, c.positions);
      EXPECT_EQ(difference(got, c.want, attention_tolerance()), "") << c.name << ", " << cpu.name;
      if (first.empty()) first = got;
      EXPECT_EQ(byte_difference(got, first), "") << c.name << ", " << cpu.name;
      if (!c.op.causal && c.encoded == 0) continue;  // whole sequences only
      EXPECT_EQ(byte_difference(run_case(c, cpu.backend, 7), first), "")
          << c.name << ", sevens, " << cpu.name;
      EXPECT_EQ(byte_difference(run_case(c, cpu.backend, 1), first), "") << c.name << ", ones, " << cpu.name;
    }
  }
}

TEST(SeenPositions, ALayerThatReadsAnothersKeysHasItsOwnBytes) {
  const Table q = random_table(90, 32, 5), k = random_table(90, 16, 6), v = random_table(90, 16, 7);
  const graph::Attention own{.q = {},
                             .k = {},
                             .v = {},
                             .layer = 0,
                             .heads = 4,
                             .kv_heads = 2,
                             .head_dim = 8,
                             .v_dim = 8,
                             .scale = 0.4F,
                             .window = 11};
  const auto attend = [&](Builder& g, Inputs in, bool stored, Value queries) {
    graph::Attention op = own;
    op.q = queries;
    op.stored = stored;
    if (!stored) {
      op.k = in[1];
      op.v = in[2];
    }
    return g.attention(op);
  };
  const BatchSequence sequence = whole_sequence(90, {2, 0});
  BackendList all{backends::make_reference_backend()};
  for (const CpuVariant& cpu : all_cpus()) all.push_back(cpu.backend);
  for (const auto& backend : all) {
    TestCache memory(DType::f32, DType::f32, 2, 8, 8, 4), other(DType::f32, DType::f32, 2, 8, 8, 4);
    OpProgram plain(
        {{q, k, v}, [&](Builder& g, Inputs in) { return attend(g, in, false, g.scale(in[0], 2)); }},
        {backend}, 90);
    OpProgram sharing({{q, k, v},
                       [&](Builder& g, Inputs in) {
                         const Value first = attend(g, in, false, in[0]);
                         const Value second = attend(g, in, true, g.scale(in[0], 2));
                         return g.add(second, g.scale(first, 0));
                       }},
                      {backend}, 90);
    EXPECT_EQ(byte_difference(sharing.run({&sequence, 1}, &memory), plain.run({&sequence, 1}, &other)), "")
        << backend->name();
  }
}

TEST(SeenPositions, GraphsThatCannotBeAreRefused) {
  const Table q = random_table(3, 16, 1), k = random_table(3, 16, 2);
  const auto refuse = [&](auto change) {
    EXPECT_THROW(OpProgram({{q, k},
                            [&](Builder& g, Inputs in) {
                              graph::Attention op{};
                              op.q = in[0];
                              op.k = op.v = in[1];
                              op.heads = op.kv_heads = 2;
                              op.head_dim = op.v_dim = 8;
                              op.scale = 1;
                              change(op);
                              return g.attention(op);
                            }},
                           {backends::make_reference_backend()}, 3),
                 Error);
  };
  refuse([](graph::Attention& op) { op.stored = true; });  // by nobody
  refuse([](graph::Attention& op) { op.chunk = -1; });
  refuse([](graph::Attention& op) {
    op.chunk = 4;
    op.causal = false;
  });
  refuse([](graph::Attention& op) { op.reach = graph::Reach::encoded; });  // and causal
  const Weight bias = random_weight(DType::f32, 3, 8, 4);                  // for three heads
  refuse([&](graph::Attention& op) {
    op.distance_bias = bias.view;
    op.max_distance = 20;
  });
}

TEST(SeenPositions, ADecoderWithoutAnEncodersPositionsIsRefused) {
  const Seen c = seen_cases().back();
  ASSERT_EQ(c.op.reach, graph::Reach::encoded);
  OpProgram program(op_case(c), {backends::make_reference_backend()}, 4);
  TestCache memory(DType::f32, DType::f32, c.op.kv_heads, c.op.head_dim, c.op.v_dim, 8);
  BatchSequence sequence{{0, 1}, 3, {0}, {}, 0};
  EXPECT_THROW(program.run({&sequence, 1}, &memory), Error);
  sequence.encoded = 4;  // beyond its first row
  EXPECT_THROW(program.run({&sequence, 1}, &memory), Error);
}

/// torch: T5Attention._relative_position_bucket(torch.tensor(d), bidirectional, 32, 128).
TEST(DistanceBias, BucketsAreThoseOfT5) {
  EXPECT_EQ(graph::distance_bucket(0, 32, 128, true), 0);
  EXPECT_EQ(graph::distance_bucket(5, 32, 128, true), 0);
  EXPECT_EQ(graph::distance_bucket(-15, 32, 128, true), 15);
  EXPECT_EQ(graph::distance_bucket(-1000, 32, 128, true), 31);
  EXPECT_EQ(graph::distance_bucket(7, 32, 128, false), 23);
  EXPECT_EQ(graph::distance_bucket(-7, 32, 128, false), 7);
  EXPECT_EQ(graph::distance_bucket(500, 32, 128, false), 31);
}

}  // namespace
}  // namespace quipu::test
