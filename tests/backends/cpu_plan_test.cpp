// Whole graphs on the CPU backend: fusion, barriers and memory reuse must not show.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/error.hpp"
#include "cpu_backends.hpp"
#include "harness.hpp"

namespace quipu::test {
namespace {

using graph::Builder;
using graph::Value;
using Inputs = std::span<const Value>;

/// A graph of norms, linears, sums, gates and rotations over rows of 32, 64 and 96, connected at random: the
/// shapes of transformer blocks and others that no planner was written for.
OpCase random_case(std::uint32_t seed) {
  return {{random_table(90, 64, seed), random_table(90, 32, seed + 1)}, [seed](Builder& b, Inputs in) {
            static std::vector<Weight> kept;  // weights must outlive the programs
            std::mt19937 random(seed);
            const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
            const auto weight = [&](std::int64_t k, std::int64_t n) {
              const DType dtypes[] = {DType::q8_0, DType::q4_0, DType::f32, DType::q4_1, DType::bf16};
              std::vector<float> values = random_floats(random(), static_cast<std::size_t>(k * n));
              for (float& v : values) v *= 1.2F / std::sqrt(static_cast<float>(k));
              kept.push_back(encode_weight(dtypes[pick(5)], k, n, values));
              return kept.back().view;
            };
            const auto vector = [&](std::int64_t n) {
              kept.push_back(random_weight(DType::f32, n, 1, random()));
              return kept.back().view;
            };
            struct Made {
              Value value;
              std::int64_t width;
            };
            std::vector<Made> made{{in[0], 64}, {in[1], 32}};
            const auto of_width = [&](std::int64_t width) {
              std::vector<Value> found;
              for (const Made& m : made)
                if (m.width == width) found.push_back(m.value);
              return found.empty() ? b.linear(made[0].value, weight(64, width)) : found[pick(found.size())];
            };
            const auto inv_freq =
                std::make_shared<const std::vector<double>>(std::vector<double>{1, 0.3, 0.1, 0.03});
            int layer = 0;
            const std::size_t count = 8 + pick(25);
            for (std::size_t i = 0; i < count; ++i) {
              // Mostly from what was made last, as in a model.
              const Made from = pick(3) == 0 ? made[pick(made.size())] : made.back();
              const std::int64_t width = std::vector<std::int64_t>{32, 64, 96}[pick(3)];
              switch (pick(9)) {
                case 0:
                case 1:
                  made.push_back({b.rms_norm(from.value, vector(from.width), 1e-5F), from.width});
                  break;
                case 2:
                case 3:
                  made.push_back(
                      {b.linear(from.value, weight(from.width, width),
                                pick(2) == 0 ? std::optional<TensorView>(vector(width)) : std::nullopt),
                       width});
                  break;
                case 4: {  // a residual branch
                  const Value branch = b.linear(b.rms_norm(from.value, vector(from.width), 1e-5F),
                                                weight(from.width, from.width));
                  made.push_back(
                      {pick(2) == 0 ? b.add(from.value, branch) : b.add(branch, from.value), from.width});
                  break;
                }
                case 5: {
                  const Value gate = b.linear(from.value, weight(from.width, 96)),
                              up = b.linear(from.value, weight(from.width, 96));
                  made.push_back({b.glu(gate, up, graph::Activation::silu), 96});
                  break;
                }
                case 6:
                  made.push_back({b.add(from.value, of_width(from.width)), from.width});
                  break;
                case 7:
                  made.push_back({b.rope({.x = from.value,
                                          .heads = from.width / 8,
                                          .head_dim = 8,
                                          .neox = pick(2) == 0,
                                          .inv_freq = inv_freq}),
                                  from.width});
                  break;
                default: {
                  if (layer > 0) {
                    made.push_back({b.scale(from.value, 0.7F), from.width});
                    break;
                  }
                  const Value k = b.linear(from.value, weight(from.width, 32)), v = of_width(32);
                  const Value q = b.rms_norm(of_width(64), vector(16), 1e-5F);
                  made.push_back({b.attention({.q = q,
                                               .k = k,
                                               .v = v,
                                               .layer = layer++,
                                               .heads = 4,
                                               .kv_heads = 2,
                                               .head_dim = 16,
                                               .v_dim = 16,
                                               .scale = 0.25F,
                                               .sinks = std::nullopt}),
                                  64});
                }
              }
            }
            return b.rms_norm(made.back().value, vector(made.back().width), 1e-3F);
          }};
}

TestCache make_cache() { return {DType::f16, DType::f16, 2, 16, 16, 4}; }

TEST(CpuPlan, RandomGraphsGiveTheSameBytesForAnyThreadsIsaAndBatchAndAreCloseToTheReference) {
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    const OpCase op = random_case(seed);
    const BatchSequence whole = whole_sequence(90, {3, 1});
    const auto run = [&](const BackendList& backends, std::int32_t chunk) {
      OpProgram program(op, backends, 90);
      TestCache cache = make_cache();
      const bool attends = program.program().graph().kv_layers > 0;
      std::vector<float> rows;
      for (std::int32_t first = 0; first < 90; first += chunk) {
        BatchSequence part{{}, first, whole.pages};
        for (std::int32_t t = first; t < std::min(first + chunk, 90); ++t) part.tokens.push_back(t);
        const std::vector<float> got = program.run({&part, 1}, attends ? &cache : nullptr);
        rows.insert(rows.end(), got.begin(), got.end());
      }
      return rows;
    };
    const std::vector<float> want = run({backends::make_reference_backend()}, 90);
    std::vector<float> first;
    for (const CpuVariant& cpu : all_cpus()) {
      const std::vector<float> got = run({cpu.backend}, 90);
      if (first.empty()) {
        first = got;
        // Quantised activations add up over a dozen layers, and the last norm makes small rows large: compare
        // directions. Anything computed from the wrong bytes is far off.
        double dot = 0, a = 0, b = 0;
        for (std::size_t i = 0; i < want.size(); ++i) {
          dot += static_cast<double>(got[i]) * want[i];
          a += static_cast<double>(got[i]) * got[i];
          b += static_cast<double>(want[i]) * want[i];
        }
        EXPECT_GT(dot / std::sqrt(a * b), 0.9999) << "graph " << seed;
        EXPECT_NEAR(std::sqrt(a / b), 1, 0.01) << "graph " << seed;
      }
      EXPECT_EQ(byte_difference(got, first), "") << "graph " << seed << ", " << cpu.name;
      for (const std::int32_t chunk : {1, 13})
        EXPECT_EQ(byte_difference(run({cpu.backend}, chunk), first), "")
            << "graph " << seed << " in chunks of " << chunk << ", " << cpu.name;
    }
  }
}

TEST(CpuPlan, ARowIsTheSameAloneAndAmongSixtyFourOthers) {
  for (std::uint32_t seed = 100; seed < 110; ++seed) {
    const OpCase op = random_case(seed);
    for (const CpuVariant& cpu : all_cpus()) {
      OpProgram program(op, {cpu.backend}, 90);
      const bool attends = program.program().graph().kv_layers > 0;
      const auto width = static_cast<std::size_t>(program.width());
      TestCache cache(DType::f16, DType::f16, 2, 16, 16, 70);
      const BatchSequence lone{{33}, 0, {66}};
      const std::vector<float> alone = program.run({&lone, 1}, attends ? &cache : nullptr);
      std::vector<BatchSequence> crowd;
      for (std::int32_t i = 0; i < 65; ++i)
        crowd.push_back({{i == 40 ? 33 : (i * 5) % 90}, 0, {static_cast<std::uint32_t>(i)}});
      const std::vector<float> among = program.run(crowd, attends ? &cache : nullptr);
      EXPECT_EQ(byte_difference({among.data() + 40 * width, width}, alone), "")
          << "graph " << seed << ", " << cpu.name;
    }
  }
}

TEST(CpuPlan, RunsStepsWithoutTokensOrOutputsAndSequencesWithoutRows) {
  for (std::uint32_t seed = 200; seed < 220; ++seed) {
    const OpCase op = random_case(seed);
    for (const CpuVariant& cpu : all_cpus()) {
      OpProgram program(op, {cpu.backend}, 90);
      TestCache storage = make_cache();
      TestCache* cache = program.program().graph().kv_layers > 0 ? &storage : nullptr;
      EXPECT_TRUE(program.run({}, cache).empty());
      const BatchSequence sequence = whole_sequence(5, {2});
      EXPECT_TRUE(program.run({&sequence, 1}, cache, {}).empty());
      const std::vector<float> want = program.run({&sequence, 1}, cache);
      const std::vector<BatchSequence> gaps{{{}, 0, {}}, sequence, {{}, 64, {3}}};
      EXPECT_EQ(byte_difference(program.run(gaps, cache), want), "") << "graph " << seed << ", " << cpu.name;
      const BatchSequence one{{0}, 0, {2}};
      const std::vector<BatchSequence> one_and_gaps{{{}, 0, {}}, one, {{}, 0, {}}};
      const std::vector<float> single = program.run({&one, 1}, cache);
      EXPECT_EQ(byte_difference(program.run(one_and_gaps, cache), single), "")
          << "graph " << seed << ", " << cpu.name;
    }
  }
}

/// A plan called with an empty step, past the program that would not have called it.
TEST(CpuPlan, PlansThemselvesAcceptAnEmptyStep) {
  BackendList backends{backends::make_reference_backend()};
  for (const CpuVariant& cpu : all_cpus()) backends.push_back(cpu.backend);
  for (const auto& backend : backends) {
    Builder b;
    const Weight table = random_weight(DType::f32, 64, 9, 1), w = random_weight(DType::q4_0, 64, 33, 2);
    const Value x = b.at("x").embed(table.view);
    const Value attended = b.attention({.q = x,
                                        .k = x,
                                        .v = x,
                                        .layer = 0,
                                        .heads = 2,
                                        .kv_heads = 2,
                                        .head_dim = 32,
                                        .v_dim = 32,
                                        .scale = 1,
                                        .sinks = std::nullopt});
    const graph::Graph graph = b.finish(b.linear(b.gather_outputs(attended), w.view));
    const graph::MemoryPlan memory = graph::plan_memory(graph, 8, 8);
    const auto plan = backend->compile(graph, {0, graph.nodes.size()}, memory);
    const auto scratch = backend->allocate(0, memory.bytes);
    TestCache cache(DType::f16, DType::f16, 2, 32, 32, 2);
    graph::Step step;
    step.kv = {&cache.layer(), 1};
    plan->run(step, scratch->data());
    EXPECT_TRUE(cache.untouched(0, 0));
  }
}

TEST(CpuPlan, ChargesScratchAndPrivateMemoryToTheFirstDevice) {
  backends::CpuOptions options;
  options.threads = std::make_shared<ThreadPool>(2);
  options.device_budgets = {std::uint64_t{64} << 20, 1000};
  const std::shared_ptr<backends::Backend> backend = backends::make_cpu_backend(std::move(options));
  ASSERT_EQ(backend->devices().size(), 2U);
  EXPECT_EQ(backend->devices()[1].name, "cpu:1");
  {
    OpProgram program(random_case(1), {backend}, 90);
    EXPECT_EQ(backend->devices()[0].used_bytes, program.program().scratch_bytes());
  }
  EXPECT_EQ(backend->devices()[0].used_bytes, 0U);
  EXPECT_EQ(backend->devices()[1].used_bytes, 0U);
  EXPECT_THROW((void)backend->allocate(1, 1001), Error);
  EXPECT_THROW((void)backend->allocate(2, 1), Error);
}

}  // namespace
}  // namespace quipu::test
