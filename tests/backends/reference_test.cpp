// The reference backend against numpy (tools/goldens/make_op_goldens.py) and hand computation.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "formats/gguf/gguf.hpp"
#include "harness.hpp"
#include "op_goldens.hpp"
#include "support.hpp"

namespace quipu::test {
namespace {

using graph::Activation;
using graph::Builder;
using graph::Value;
using Inputs = std::span<const Value>;

class Reference : public testing::Test, protected OpGoldens {
 protected:
  BackendList backends_{backends::make_reference_backend()};
};

TEST_F(Reference, EmbedYieldsTheRowsOfTheTokens) {
  const OpCase op{{{2, {1, 2, 3, 4, 5, 6}}}, [](Builder&, Inputs x) { return x[0]; }};
  OpProgram program(op, backends_, 4);
  const BatchSequence sequence{{2, 0, 2, 1}, 0, {0}};
  EXPECT_EQ(program.run({&sequence, 1}), (std::vector<float>{5, 6, 1, 2, 5, 6, 3, 4}));
}

TEST_F(Reference, EmbedDecodesItsRows) {
  // One Q8_0 row, d = 0.5, q = -16 … 15; the table is the whole vocabulary of one token.
  std::vector<float> row(32);
  for (int i = 0; i < 32; ++i) row[static_cast<std::size_t>(i)] = 0.5F * static_cast<float>(i - 16);
  std::vector<std::byte> bytes(34);
  const std::uint16_t d = f32_to_f16(0.5F);
  std::memcpy(bytes.data(), &d, 2);
  for (int i = 0; i < 32; ++i) bytes[static_cast<std::size_t>(2 + i)] = static_cast<std::byte>(i - 16);
  TensorView weight;
  weight.dtype = DType::q8_0;
  weight.shape = {32, 1, 1, 1};
  weight.data = bytes.data();
  const OpCase op{{}, [&](Builder& b, Inputs) { return b.embed(weight); }};
  EXPECT_EQ(run_rows(op, backends_, 1), row);
}

TEST_F(Reference, GatherTakesTheRowsAskedFor) {
  const OpCase op{{{1, {10, 11, 12, 13}}}, [](Builder&, Inputs x) { return x[0]; }};
  OpProgram program(op, backends_, 4);
  const BatchSequence sequence = whole_sequence(4);
  EXPECT_EQ(program.run({&sequence, 1}, nullptr, {0, 3}), (std::vector<float>{10, 13}));
  EXPECT_EQ(program.run({&sequence, 1}, nullptr, {2}), (std::vector<float>{12}));
  EXPECT_EQ(program.run({&sequence, 1}, nullptr, {}), std::vector<float>());
}

TEST_F(Reference, AddMulAndScaleByHand) {
  const Table a{3, {1, -2, 0.5F}}, b{3, {10, 20, -4}};
  EXPECT_EQ(run_rows({{a, b}, [](Builder& g, Inputs x) { return g.add(x[0], x[1]); }}, backends_, 1),
            (std::vector<float>{11, 18, -3.5F}));
  EXPECT_EQ(run_rows({{a, b}, [](Builder& g, Inputs x) { return g.mul(x[0], x[1]); }}, backends_, 1),
            (std::vector<float>{10, -40, -2}));
  EXPECT_EQ(run_rows({{a}, [](Builder& g, Inputs x) { return g.scale(x[0], -2); }}, backends_, 1),
            (std::vector<float>{-2, 4, -1}));
}

TEST_F(Reference, ActivationsAgreeWithNumpy) {
  const std::vector<std::string> names = golden().metadata().try_strings("activations")->strings();
  ASSERT_EQ(names.size(), 8U);
  const Table x = table("activate.x"), up = table("activate.up");
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto kind = static_cast<Activation>(i);
    EXPECT_EQ(difference(run_rows({{x}, [&](Builder& g, Inputs in) { return g.activate(in[0], kind); }},
                                  backends_, 1),
                         values("activate." + names[i] + ".y"), kOneRounding),
              "")
        << names[i];
    EXPECT_EQ(difference(run_rows({{x, up}, [&](Builder& g, Inputs in) { return g.glu(in[0], in[1], kind); }},
                                  backends_, 1),
                         values("glu." + names[i] + ".y"), kOneRounding),
              "")
        << names[i];
  }
}

TEST_F(Reference, NormsAgreeWithNumpy) {
  const Table x = table("norm.x");
  const TensorView weight = tensor("norm.weight"), bias = tensor("norm.bias");
  TensorView head_weight = weight;
  head_weight.shape[0] = 12;
  const auto eps = static_cast<float>(golden().metadata().get_float("norm.eps"));
  const auto check = [&](const char* name, auto build) {
    EXPECT_EQ(difference(run_rows({{x}, build}, backends_, 5), values(name), kOneRounding), "") << name;
  };
  check("rms_norm.y", [&](Builder& g, Inputs in) { return g.rms_norm(in[0], weight, eps); });
  check("rms_norm_heads.y", [&](Builder& g, Inputs in) { return g.rms_norm(in[0], head_weight, eps); });
  check("layer_norm.y",
        [&](Builder& g, Inputs in) { return g.layer_norm(in[0], weight, std::nullopt, eps); });
  check("layer_norm_bias.y", [&](Builder& g, Inputs in) { return g.layer_norm(in[0], weight, bias, eps); });
}

TEST_F(Reference, LinearAgreesWithNumpyForEveryDtypeThatCanBeDecoded) {
  const std::vector<std::string> dtypes = golden().metadata().try_strings("linear.dtypes")->strings();
  EXPECT_GE(dtypes.size(), weight_dtypes().size());
  for (const std::string& dtype : dtypes) {
    const std::string name = "linear." + dtype;
    const TensorView weight = tensor(name + ".weight"), bias = tensor(name + ".bias");
    EXPECT_EQ(to_string(weight.dtype), dtype);
    const OpCase op{{table(name + ".x")},
                    [&](Builder& g, Inputs in) { return g.linear(in[0], weight, bias); }};
    // Products cancel: the error is a few units of the largest term (about 5), not of the sum. numpy decodes
    // K-quants with one rounding more.
    EXPECT_EQ(difference(run_rows(op, backends_, 3), values(name + ".y"), {4e-6, 1.2e-7}), "") << dtype;
  }
}

TEST_F(Reference, RopeAgreesWithNumpy) {
  for (const std::string& name : golden().metadata().try_strings("rope.cases")->strings()) {
    const std::string key = "rope." + name + ".";
    std::vector<double> inv_freq;
    const std::int64_t pairs = number(key + "pairs");
    for (std::int64_t i = 0; i < pairs; ++i)
      inv_freq.push_back(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(pairs)));
    const OpCase op{
        {table(key + "x")}, [&](Builder& g, Inputs in) {
          return g.rope({.x = in[0],
                         .heads = number(key + "heads"),
                         .head_dim = number(key + "head_dim"),
                         .neox = golden().metadata().get_bool(key + "neox"),
                         .inv_freq = std::make_shared<const std::vector<double>>(inv_freq),
                         .magnitude = static_cast<float>(golden().metadata().get_float(key + "magnitude"))});
        }};
    OpProgram program(op, backends_, 6);
    BatchSequence sequence = whole_sequence(6);
    sequence.first_position = static_cast<std::int32_t>(number(key + "first"));
    const std::vector<float> want = values(key + "y");
    EXPECT_EQ(difference(program.run({&sequence, 1}), want, {1e-7, 2e-7}), "") << name;

    // Each row of a sequence of its own at the same position: positions come from the sequences, not the
    // rows.
    std::vector<BatchSequence> single;
    for (std::int32_t t = 0; t < 6; ++t) single.push_back({{t}, sequence.first_position + t, {0}});
    EXPECT_EQ(difference(program.run(single), want, {1e-7, 2e-7}), "") << name;
  }
}

class ReferenceAttention : public Reference {
 protected:
  struct Case {
    std::string name;
    OpCase op;
    std::int64_t positions, kv_heads, head_dim, v_dim;
    DType cache;
    std::vector<float> want;
  };
  static std::vector<Case> cases() {
    std::vector<Case> all;
    for (const std::string& name : golden().metadata().try_strings("attention.cases")->strings()) {
      const std::string key = "attention." + name + ".";
      const graph::Attention op = attention(key);
      all.push_back({name, attention_case(key, op), table(key + "q").rows(), op.kv_heads, op.head_dim,
                     op.v_dim, find_dtype(golden().metadata().get_string(key + "cache"))->dtype,
                     values(key + "y")});
    }
    return all;
  }
  static TestCache cache(const Case& c, std::uint32_t pages) {
    return {c.cache, c.cache, c.kv_heads, c.head_dim, c.v_dim, pages};
  }
  /// Double inside; scores differ from numpy's by their own rounding.
  static constexpr Tolerance kTolerance{2e-7, 3e-7};
};

TEST_F(ReferenceAttention, AgreesWithNumpyInOneStep) {
  for (const Case& c : cases()) {
    OpProgram program(c.op, backends_, c.positions);
    TestCache memory = cache(c, 5);
    const BatchSequence sequence = whole_sequence(static_cast<std::int32_t>(c.positions), {4, 1, 2});
    EXPECT_EQ(difference(program.run({&sequence, 1}, &memory), c.want, kTolerance), "") << c.name;
  }
}

TEST_F(ReferenceAttention, AgreesWithNumpyInChunksAndPositionByPosition) {
  for (const std::int32_t chunk : {1, 17, 64})
    for (const Case& c : cases()) {
      OpProgram program(c.op, backends_, chunk);
      TestCache memory = cache(c, 5);
      std::vector<float> got;
      for (std::int32_t first = 0; first < c.positions; first += chunk) {
        BatchSequence sequence{{}, first, {2, 4, 0}};
        for (std::int32_t t = first; t < std::min<std::int64_t>(first + chunk, c.positions); ++t)
          sequence.tokens.push_back(t);
        const std::vector<float> part = program.run({&sequence, 1}, &memory);
        got.insert(got.end(), part.begin(), part.end());
      }
      EXPECT_EQ(difference(got, c.want, kTolerance), "") << c.name << " in chunks of " << chunk;
    }
}

TEST_F(ReferenceAttention, SequencesInOneBatchDoNotSeeEachOther) {
  for (const Case& c : cases()) {
    // The same sequence three times, its pages scattered among each other's, at three lengths.
    OpProgram program(c.op, backends_, 3 * c.positions);
    TestCache memory = cache(c, 10);
    const auto n = static_cast<std::int32_t>(c.positions);
    std::vector<BatchSequence> batch{whole_sequence(n, {9, 0, 5}), whole_sequence(n / 2, {3, 8}),
                                     whole_sequence(n, {1, 7, 2})};
    const std::vector<float> got = program.run(batch, &memory);
    std::vector<float> want = c.want;
    want.insert(want.end(), c.want.begin(), c.want.begin() + n / 2 * program.width());
    want.insert(want.end(), c.want.begin(), c.want.end());
    EXPECT_EQ(difference(got, want, kTolerance), "") << c.name;
    // Pages nobody owns, and positions past the end, were not written.
    for (const std::uint32_t page : {4U, 6U})
      for (std::int64_t slot = 0; slot < graph::kPagePositions; ++slot)
        EXPECT_TRUE(memory.untouched(page, slot));
    EXPECT_FALSE(memory.untouched(3, 0));
    EXPECT_EQ(memory.untouched(8, 0), n / 2 <= graph::kPagePositions) << c.name;
  }
}

TEST_F(Reference, NaNInTheInputIsSeenAndStaysInItsRow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Table x{2, {1, nan, 1, 1}};
  const std::vector<float> ones(4, 1.0F);
  const Weight weight = encode_weight(DType::f32, 2, 2, ones);
  const std::vector<float> got =
      run_rows({{x}, [&](Builder& g, Inputs in) { return g.linear(in[0], weight.view); }}, backends_, 2);
  EXPECT_TRUE(std::isnan(got[0]) && std::isnan(got[1]));
  EXPECT_EQ(got[2], 2.0F);
  EXPECT_EQ(got[3], 2.0F);
}

}  // namespace
}  // namespace quipu::test
