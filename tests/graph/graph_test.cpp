// The builder's shape rules: what fits is accepted, and what does not is refused by name.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "core/error.hpp"
#include "graph/graph.hpp"

namespace quipu::graph {
namespace {

std::byte g_bytes[1];  // weights are never read here

TensorView weight(std::string name, std::array<std::int64_t, 4> shape, DType dtype = DType::f32) {
  return {std::move(name), dtype, shape, g_bytes};
}
TensorView matrix(std::int64_t k, std::int64_t n, DType dtype = DType::f32) {
  return weight("some.weight", {k, n, 1, 1}, dtype);
}
TensorView vector(std::int64_t n) { return weight("some.weight", {n, 1, 1, 1}); }

/// A builder with one value of 64 per token.
struct Start {
  Builder builder;
  Value x;
  Start() : x(builder.at("token_embd").embed(matrix(64, 100))) { builder.at("blk.3.here"); }
};

using Build = std::function<void(Builder&, Value)>;

/// Expects an error of this code whose message holds all the parts.
void expect_refused(const Build& build, ErrorCode code, std::initializer_list<const char*> parts) {
  Start start;
  try {
    build(start.builder, start.x);
    ADD_FAILURE() << "accepted; expected a message with " << *parts.begin();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    EXPECT_NE(error.message().find("blk.3.here"), std::string::npos) << error.message();
    for (const char* part : parts)
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
  }
}

Attention attention(Value q, Value k, Value v) {
  return {.q = q,
          .k = k,
          .v = v,
          .layer = 0,
          .heads = 4,
          .kv_heads = 4,
          .head_dim = 16,
          .v_dim = 16,
          .scale = 0.25F,
          .sinks = std::nullopt};
}

std::shared_ptr<const std::vector<double>> frequencies(std::size_t n) {
  return std::make_shared<const std::vector<double>>(n, 1.0);
}

TEST(Builder, GivesEveryOpItsShape) {
  Start s;
  Builder& b = s.builder;
  const Value wide = b.linear(s.x, matrix(64, 96, DType::q4_0), vector(96));
  const Value turned =
      b.rope({.x = wide, .heads = 12, .head_dim = 8, .neox = true, .inv_freq = frequencies(3)});
  const Value k = b.linear(s.x, matrix(64, 32)), v = b.linear(s.x, matrix(64, 20));
  const Value attended = b.attention({.q = turned,
                                      .k = k,
                                      .v = v,
                                      .layer = 2,
                                      .heads = 12,
                                      .kv_heads = 4,
                                      .head_dim = 8,
                                      .v_dim = 5,
                                      .scale = 1,
                                      .sinks = vector(12)});
  const Value rows = b.gather_outputs(attended);
  const Value normed = b.rms_norm(rows, vector(5), 1e-5F);
  const Graph g = b.finish(b.linear(normed, matrix(60, 7)));
  EXPECT_EQ(g.value(turned).width, 96);
  EXPECT_EQ(g.value(attended).width, 60);
  EXPECT_EQ(g.value(attended).rows, Rows::tokens);
  EXPECT_EQ(g.value(normed).rows, Rows::outputs);
  EXPECT_EQ(g.value(g.output).width, 7);
  EXPECT_EQ(g.kv_layers, 3);
  ASSERT_EQ(g.kv_shapes.size(), 3U);
  EXPECT_EQ(g.kv_shapes[0].kv_heads, 0);
  EXPECT_EQ(g.kv_shapes[2].kv_heads, 4);
  EXPECT_EQ(g.kv_shapes[2].key_dim, 8);
  EXPECT_EQ(g.kv_shapes[2].value_dim, 5);
  EXPECT_EQ(g.token_limit, 100);
}

TEST(Builder, NamesOpsAndTheirInputs) {
  Start s;
  const Value y = s.builder.glu(s.x, s.x, Activation::silu);
  const Value z = s.builder.at("later").add(y, s.x);
  const Graph g = s.builder.finish(s.builder.gather_outputs(z));
  EXPECT_EQ(op_name(g.nodes[0].op), "embed");
  EXPECT_TRUE(op_inputs(g.nodes[0].op).empty());
  EXPECT_EQ(op_name(g.nodes[1].op), "glu");
  EXPECT_EQ(g.nodes[1].name, "blk.3.here");
  EXPECT_EQ(op_inputs(g.nodes[2].op), (std::vector<Value>{y, s.x}));
  EXPECT_EQ(g.nodes[2].name, "later");
}

TEST(Builder, StartsAnewAfterFinish) {
  Start s;
  (void)s.builder.finish(s.builder.gather_outputs(s.x));
  const Value x = s.builder.embed(matrix(8, 5));
  const Graph g = s.builder.finish(s.builder.gather_outputs(x));
  EXPECT_EQ(g.nodes.size(), 2U);
  EXPECT_EQ(g.token_limit, 5);
}

TEST(Builder, RefusesWeightsThatDoNotFit) {
  const auto bad = ErrorCode::bad_file;
  expect_refused([](Builder& b, Value x) { b.linear(x, matrix(65, 3)); }, bad, {"some.weight", "65x3", "64"});
  expect_refused(
      [](Builder& b, Value x) {
        b.linear(x, weight("some.weight", {64, 3, 2, 1}));
      },
      bad, {"64x3x2"});
  expect_refused([](Builder& b, Value x) { b.linear(x, matrix(64, 3), vector(4)); }, bad,
                 {"some.weight", "4", "3"});
  expect_refused([](Builder& b, Value x) { b.linear(x, matrix(64, 0)); }, bad, {"64x0"});
  expect_refused([](Builder& b, Value x) { b.rms_norm(x, vector(48), 0); }, bad, {"some.weight", "48", "64"});
  expect_refused([](Builder& b, Value x) { b.rms_norm(x, matrix(64, 2), 0); }, bad, {"64x2", "vector"});
  expect_refused([](Builder& b, Value x) { b.rms_norm(x, vector(0), 0); }, bad, {"vector"});
  expect_refused([](Builder& b, Value x) { b.layer_norm(x, vector(48), std::nullopt, 0); }, bad,
                 {"48", "64"});
  expect_refused([](Builder& b, Value x) { b.layer_norm(x, vector(64), vector(63), 0); }, bad, {"63", "64"});
  expect_refused([](Builder& b, Value) { b.embed(weight("t", {8, 4, 4, 1})); }, bad, {"8x4x4"});
  expect_refused(
      [](Builder& b, Value x) {
        Attention a = attention(x, x, x);
        a.sinks = vector(5);
        b.attention(a);
      },
      bad, {"some.weight", "5", "4"});
}

TEST(Builder, RefusesDtypesItCannotComputeWith) {
  expect_refused([](Builder& b, Value x) { b.linear(x, matrix(64, 3, DType::i32)); }, ErrorCode::bad_file,
                 {"some.weight", "I32"});
  expect_refused([](Builder& b, Value x) { b.linear(x, matrix(64, 3, DType::q8_1)); }, ErrorCode::unsupported,
                 {"some.weight", "Q8_1"});
  expect_refused([](Builder& b, Value x) { b.linear(x, matrix(64, 3, DType::q4_k)); }, ErrorCode::bad_file,
                 {"some.weight", "Q4_K", "256"});
}

TEST(Builder, QuotesNamesFromFilesSafely) {
  expect_refused(
      [](Builder& b, Value x) {
        b.linear(x, weight("bad\x1b[31m", {1, 1, 1, 1}));
      },
      ErrorCode::bad_file, {"bad"});
  Start s;
  try {
    s.builder.linear(s.x, weight("bad\x1b[31m", {1, 1, 1, 1}));
  } catch (const Error& error) {
    EXPECT_EQ(error.message().find('\x1b'), std::string::npos);
  }
}

TEST(Builder, RefusesValuesThatDoNotFit) {
  const auto internal = ErrorCode::internal;
  expect_refused([](Builder& b, Value x) { b.add(x, b.linear(x, matrix(64, 3))); }, internal, {"64", "3"});
  expect_refused([](Builder& b, Value x) { b.mul(x, b.gather_outputs(x)); }, internal, {"token", "output"});
  expect_refused([](Builder& b, Value x) { b.glu(x, b.linear(x, matrix(64, 3)), Activation::silu); },
                 internal, {"3"});
  expect_refused([](Builder& b, Value) { b.scale(Value{}, 2); }, internal, {"value"});
  expect_refused([](Builder& b, Value) { b.activate(Value{7}, Activation::relu); }, internal, {"7"});
  expect_refused([](Builder& b, Value x) { b.gather_outputs(b.gather_outputs(x)); }, internal, {"token"});
  expect_refused([](Builder& b, Value x) { b.rms_norm(x, vector(64), -1.0F); }, internal, {"-1"});
  expect_refused([](Builder& b, Value x) { b.layer_norm(x, vector(64), std::nullopt, std::nanf("")); },
                 internal, {"nan"});
}

TEST(Builder, RefusesRopeOfTheWrongShape) {
  const auto refuse = [](std::int64_t heads, std::int64_t head_dim,
                         std::shared_ptr<const std::vector<double>> turns, const char* part) {
    expect_refused(
        [&](Builder& b, Value x) {
          b.rope({.x = x, .heads = heads, .head_dim = head_dim, .neox = false, .inv_freq = turns});
        },
        ErrorCode::internal, {part});
  };
  refuse(4, 15, frequencies(2), "60");
  refuse(0, 64, frequencies(2), "positive");
  refuse(std::int64_t{1} << 62, 4, frequencies(2), "overflow");
  refuse(4, 16, nullptr, "frequencies");
  refuse(4, 16, frequencies(9), "9");
}

TEST(Builder, RefusesAttentionOfTheWrongShape) {
  const auto refuse = [](const std::function<void(Attention&)>& change,
                         std::initializer_list<const char*> parts) {
    expect_refused(
        [&](Builder& b, Value x) {
          Attention a = attention(x, x, x);
          change(a);
          b.attention(a);
        },
        ErrorCode::internal, parts);
  };
  refuse([](Attention& a) { a.heads = 8; }, {"q", "128"});
  refuse([](Attention& a) { a.kv_heads = 2; }, {"k", "32"});
  refuse([](Attention& a) { a.v_dim = 8; }, {"v", "32"});
  refuse([](Attention& a) { a.kv_heads = 0; }, {"positive"});
  refuse([](Attention& a) { a.layer = -1; }, {"-1"});
  refuse([](Attention& a) { a.window = -4; }, {"-4"});
  refuse([](Attention& a) { a.soft_cap = -1; }, {"-1"});
  refuse([](Attention& a) { a.scale = std::numeric_limits<float>::infinity(); }, {"scale"});
  expect_refused(
      [](Builder& b, Value x) {
        b.attention(attention(x, x, x));
        b.attention(attention(x, x, x));
      },
      ErrorCode::internal, {"layer 0"});
  expect_refused(
      [](Builder& b, Value x) {
        Attention a = attention(x, x, x);
        const Value three = b.linear(x, matrix(64, 48));
        a.k = a.v = three;
        a.kv_heads = 3;
        b.attention(a);
      },
      ErrorCode::internal, {"4 heads", "3"});
}

MoeRoute route_of(Value logits, std::int64_t used) {
  MoeRoute op;
  op.logits = logits;
  op.used = used;
  return op;
}

TEST(Builder, ExpertsHaveAWidthForEachChosenOne) {
  Start s;
  const Value route = s.builder.moe_route(route_of(s.builder.linear(s.x, matrix(64, 8)), 3));
  EXPECT_EQ(s.builder.info(route).width, 6);
  const Value up = s.builder.moe_linear(s.x, route, weight("up", {64, 10, 8, 1}), weight("b", {10, 8, 1, 1}));
  EXPECT_EQ(s.builder.info(up).width, 30);
  const Value down = s.builder.moe_linear(up, route, weight("down", {10, 64, 8, 1}));
  EXPECT_EQ(s.builder.info(down).width, 192);
  EXPECT_EQ(s.builder.info(s.builder.moe_combine(down, route)).width, 64);
}

TEST(Builder, RefusesExpertsThatDoNotFit) {
  const auto internal = ErrorCode::internal, bad = ErrorCode::bad_file;
  expect_refused([](Builder& b, Value x) { b.moe_route(route_of(x, 65)); }, internal, {"65", "64"});
  expect_refused([](Builder& b, Value x) { b.moe_route(route_of(x, 0)); }, internal, {"0 of 64"});
  expect_refused(
      [](Builder& b, Value x) {
        MoeRoute op = route_of(x, 20);
        op.groups = 8;
        op.groups_used = 2;  // 16 experts
        b.moe_route(op);
      },
      internal, {"2 of 8 groups", "20 of 64"});
  expect_refused(
      [](Builder& b, Value x) {
        MoeRoute op = route_of(x, 2);
        op.bias = vector(63);
        b.moe_route(op);
      },
      bad, {"63", "64"});
  expect_refused(
      [](Builder& b, Value x) {
        b.moe_linear(x, x, weight("up", {64, 10, 8, 1}));
      },
      internal, {"moe_route"});
  expect_refused([](Builder& b, Value x) { b.moe_combine(x, x); }, internal, {"moe_route"});
  expect_refused(
      [](Builder& b, Value x) {
        b.moe_linear(x, b.moe_route(route_of(x, 2)), weight("up", {64, 10, 8, 1}));
      },
      bad, {"8 experts", "64"});
  expect_refused(
      [](Builder& b, Value x) {
        b.moe_linear(x, b.moe_route(route_of(x, 2)), weight("up", {40, 10, 64, 1}));
      },
      internal, {"64", "80"});
  expect_refused(
      [](Builder& b, Value x) {
        b.moe_linear(x, b.moe_route(route_of(x, 2)), weight("up", {64, 10, 64, 1}), vector(10));
      },
      bad, {"some.weight", "10", "64"});
}

TEST(Builder, RefusesPartsThatDoNotFit) {
  const auto internal = ErrorCode::internal;
  expect_refused([](Builder& b, Value x) { b.slice(x, 3, 0, 1); }, internal, {"64", "3 equal parts"});
  expect_refused([](Builder& b, Value x) { b.slice(x, 4, 10, 7); }, internal, {"10 to 17", "16"});
  expect_refused([](Builder& b, Value x) { b.slice(x, 4, 0, 0); }, internal, {"0 to 0"});
  expect_refused([](Builder& b, Value x) { b.concat(x, b.slice(x, 1, 0, 5), 4); }, internal,
                 {"5", "4 equal parts"});
  expect_refused([](Builder& b, Value x) { b.concat(x, b.gather_outputs(x), 1); }, internal,
                 {"tokens", "outputs"});
  expect_refused(
      [](Builder& b, Value x) {
        b.head_linear(x, weight("k_b", {20, 7, 3, 1}));
      },
      internal, {"64", "60"});
  expect_refused(
      [](Builder& b, Value x) {
        b.rms_norm(x, weight("q_norm", {16, 3, 1, 1}), 0);
      },
      ErrorCode::bad_file, {"q_norm", "16x3", "64"});
  expect_refused([](Builder& b, Value x) { b.glu(x, x, Activation::silu, -1); }, internal, {"-1"});
  Start s;
  EXPECT_EQ(s.builder.info(s.builder.concat(s.x, s.builder.slice(s.x, 1, 0, 5), 4, true)).width, 84);
}

TEST(Builder, RefusesAnOutputWithARowPerToken) {
  Start s;
  EXPECT_THROW((void)s.builder.finish(s.x), Error);
  EXPECT_THROW((void)s.builder.finish(Value{99}), Error);
}

TEST(Graph, KnowsTheNodesThatReadEachValue) {
  Start s;                                          // node 0
  const Value twice = s.builder.add(s.x, s.x);      // 1
  const Value product = s.builder.mul(twice, s.x);  // 2
  const Value last = s.builder.gather_outputs(product);
  const auto users = value_users(s.builder.finish(last));
  using Nodes = std::vector<std::size_t>;
  EXPECT_EQ(users[s.x.id], Nodes({1, 2}));  // node 1 counts once
  EXPECT_EQ(users[twice.id], Nodes({2}));
  EXPECT_EQ(users[product.id], Nodes({3}));
  EXPECT_EQ(users[last.id], Nodes({}));
}

}  // namespace
}  // namespace quipu::graph
