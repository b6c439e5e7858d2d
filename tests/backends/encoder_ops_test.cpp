// What encoders need beyond a decoder's ops: attention over whole sequences, token types, pooling. The
// reference against numpy (tools/goldens/make_op_goldens.py), the CPU backend against both.
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "cpu_backends.hpp"
#include "formats/gguf/gguf.hpp"
#include "harness.hpp"
#include "op_goldens.hpp"
#include "support.hpp"

namespace quipu::test {
namespace {

using graph::Builder;
using graph::Value;
using Inputs = std::span<const Value>;

Table table(const std::string& name) { return OpGoldens::table(name); }

struct Case {
  std::string name;
  OpCase op;
  std::int32_t positions;
  std::int64_t kv_heads, head_dim;
  std::vector<float> want;
};

std::vector<Case> whole_cases() {
  std::vector<Case> all;
  for (const std::string& name : OpGoldens::golden().metadata().try_strings("whole.cases")->strings()) {
    const std::string key = "whole." + name + ".";
    graph::Attention attention = OpGoldens::attention(key);
    attention.causal = false;
    all.push_back({name, OpGoldens::attention_case(key, attention),
                   static_cast<std::int32_t>(table(key + "q").rows()), attention.kv_heads, attention.head_dim,
                   table(key + "y").values});
  }
  return all;
}

TestCache cache_of(const Case& c, std::uint32_t pages) {
  return {DType::f32, DType::f32, c.kv_heads, c.head_dim, c.head_dim, pages};
}

std::vector<float> alone(const Case& c, const std::shared_ptr<backends::Backend>& backend) {
  OpProgram program(c.op, {backend}, c.positions);
  TestCache memory = cache_of(c, 5);
  const BatchSequence sequence = whole_sequence(c.positions, {4, 1, 2});
  return program.run({&sequence, 1}, &memory);
}

TEST(WholeAttention, OfTheReferenceIsThatOfNumpy) {
  for (const Case& c : whole_cases())
    EXPECT_EQ(difference(alone(c, backends::make_reference_backend()), c.want, {2e-7, 3e-7}), "") << c.name;
}

TEST(WholeAttention, OfTheCpuIsThatOfNumpyAndTheSameBytesOnEveryInstructionSet) {
  for (const Case& c : whole_cases()) {
    std::vector<float> first;
    for (const CpuVariant& cpu : all_cpus()) {
      const std::vector<float> got = alone(c, cpu.backend);
      EXPECT_EQ(difference(got, c.want, attention_tolerance()), "") << c.name << ", " << cpu.name;
      if (first.empty()) first = got;
      EXPECT_EQ(byte_difference(got, first), "") << c.name << ", " << cpu.name;
    }
  }
}

TEST(WholeAttention, SequencesInOneBatchDoNotSeeEachOther) {
  for (const Case& c : whole_cases())
    for (const CpuVariant& cpu : {cpu_by_isa().back(), cpu_by_threads().back()}) {
      const std::vector<float> expected = alone(c, cpu.backend);
      OpProgram program(c.op, {cpu.backend}, 3 * c.positions);
      TestCache memory = cache_of(c, 10);
      // Others before and behind, of another length.
      BatchSequence other = whole_sequence(c.positions, {9, 0, 5});
      other.tokens.resize(static_cast<std::size_t>(c.positions / 2 + 1));
      const std::vector<BatchSequence> batch{other, whole_sequence(c.positions, {3, 8, 6}),
                                             whole_sequence(c.positions, {1, 7, 2})};
      const std::vector<float> got = program.run(batch, &memory);
      const std::size_t size = expected.size();
      EXPECT_EQ(byte_difference(std::span(got).last(size), expected), "") << c.name << ", " << cpu.name;
      EXPECT_EQ(byte_difference(std::span(got).subspan(got.size() - 2 * size, size), expected), "")
          << c.name << ", " << cpu.name;
    }
}

/// More than a chunk of 512 positions, several units of work.
TEST(WholeAttention, OfLongSequencesIsThatOfTheReference) {
  for (const std::int64_t window : {0, 600}) {
    const OpCase op{{random_table(211, 64, 1), random_table(211, 32, 2), random_table(211, 32, 3)},
                    [window](Builder& g, Inputs in) {
                      return g.attention({.q = in[0],
                                          .k = in[1],
                                          .v = in[2],
                                          .layer = 0,
                                          .heads = 4,
                                          .kv_heads = 2,
                                          .head_dim = 16,
                                          .v_dim = 16,
                                          .scale = 0.25f,
                                          .window = window,
                                          .sinks = std::nullopt,
                                          .causal = false});
                    }};
    BatchSequence sequence;
    for (std::int32_t t = 0; t < 1100; ++t) sequence.tokens.push_back(t % 211);
    for (std::uint32_t page = 0; page < 18; ++page) sequence.pages.push_back((page * 7 + 3) % 24);
    const auto run = [&](const std::shared_ptr<backends::Backend>& backend) {
      OpProgram program(op, {backend}, 1100);
      TestCache memory(DType::f32, DType::f32, 2, 16, 16, 24);
      return program.run({&sequence, 1}, &memory);
    };
    const std::vector<float> want = run(backends::make_reference_backend());
    std::vector<float> first;
    for (const CpuVariant& cpu : {cpu_by_isa().front(), cpu_by_isa().back(), cpu_by_threads().back()}) {
      const std::vector<float> got = run(cpu.backend);
      EXPECT_EQ(difference(got, want, attention_tolerance()), "") << window << ", " << cpu.name;
      if (first.empty()) first = got;
      EXPECT_EQ(byte_difference(got, first), "") << window << ", " << cpu.name;
    }
  }
}

TEST(WholeAttention, ASequenceThatDoesNotBeginAtItsStartIsRefused) {
  const Case c = whole_cases().front();
  OpProgram program(c.op, {backends::make_reference_backend()}, c.positions);
  TestCache memory = cache_of(c, 5);
  BatchSequence sequence = whole_sequence(3, {4, 1, 2});
  sequence.first_position = 2;
  try {
    program.run({&sequence, 1}, &memory);
    FAIL() << "nothing thrown";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("begins at position 2"), std::string::npos) << error.message();
  }
}

TEST(Pool, IsTheMeanOrTheFirstRowOfEachSequence) {
  const Table x = table("pool.x");
  for (const auto& [kind, name] :
       {std::pair{graph::Pool::Kind::mean, "mean"}, std::pair{graph::Pool::Kind::first, "first"}}) {
    const OpCase op{{x}, [kind = kind](Builder& g, Inputs in) { return g.pool(in[0], kind); }};
    std::vector<BatchSequence> batch(3);
    batch[0].tokens = {0};
    batch[1].tokens = {1, 2, 3, 4, 5};
    batch[2].tokens = {6, 7, 8};
    const std::vector<float> want = table(std::string("pool.") + name + ".y").values;
    OpProgram reference(op, {backends::make_reference_backend()}, 9);
    EXPECT_EQ(difference(reference.run(batch, nullptr, {0, 5, 8}), want, {1e-9, 1.2e-7}), "") << name;
    std::vector<float> first;
    for (const CpuVariant& cpu : all_cpus()) {
      OpProgram program(op, {cpu.backend}, 9);
      const std::vector<float> got = program.run(batch, nullptr, {0, 5, 8});
      EXPECT_EQ(difference(got, want, {1e-6, 1e-6}), "") << name << ", " << cpu.name;
      if (first.empty()) first = got;
      EXPECT_EQ(byte_difference(got, first), "") << name << ", " << cpu.name;
      EXPECT_EQ(byte_difference(program.run({&batch[1], 1}, nullptr, {4}), std::span(first).subspan(20, 20)),
                "")
          << name << " alone, " << cpu.name;
    }
  }
}

TEST(EmbedTypes, YieldsTheRowOfEachTokensType) {
  const std::vector<float> rows{1, 2, 3, 4};
  const Weight types = encode_weight(DType::f32, 2, 2, rows);
  const std::vector<std::int32_t> tokens{5, 5, 6}, of_two{0, 1, 1}, wrong{0, 2, 1};
  const graph::SequenceRows sequence{0, 3, 0, {}};
  const std::vector<std::uint32_t> outputs{0, 1, 2};
  for (const bool cpu : {false, true}) {
    const std::shared_ptr<backends::Backend> backend =
        cpu ? backends::make_cpu_backend() : backends::make_reference_backend();
    Builder g;
    const Weight vocabulary = random_weight(DType::f32, 2, 7, 1);
    g.at("ids").embed(vocabulary.view);
    const Value x = g.at("types").embed_types(types.view);
    const std::vector<std::shared_ptr<backends::Backend>> list{backend};
    backends::Program program(g.finish(g.gather_outputs(x)), list, 3, 3);
    std::vector<float> out(6);
    program.run({tokens, {&sequence, 1}, {}, outputs, out.data(), of_two});
    EXPECT_EQ(out, (std::vector<float>{1, 2, 3, 4, 3, 4}));
    program.run({tokens, {&sequence, 1}, {}, outputs, out.data()});
    EXPECT_EQ(out, (std::vector<float>{1, 2, 1, 2, 1, 2}));
    EXPECT_THROW(program.run({tokens, {&sequence, 1}, {}, outputs, out.data(), wrong}), Error);
  }
}

}  // namespace
}  // namespace quipu::test
