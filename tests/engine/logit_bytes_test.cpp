// Bytes of logits by whole engines, for every type of weights and every instruction set: threads, batches,
// chunks, company, pages, repetition (docs/numerics.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "backends/cpu/cpu_plan.hpp"
#include "backends/cpu_emulated.hpp"
#include "core/cpu_features.hpp"
#include "engine_fixture.hpp"
#include "support.hpp"

namespace quipu::engine {
namespace {

using test::EngineSettings;
using test::greedy;
using test::make_engine;
using test::random_prompt;
using test::Trace;
using test::trace_of;

constexpr std::int64_t kLetters = 6;

/// Made once: the slower encoders take longer than the tests.
std::shared_ptr<const models::Model> model_of(DType dtype) {
  static std::map<DType, std::shared_ptr<const models::Model>> made;
  if (const auto found = made.find(dtype); found != made.end()) return found->second;
  test::TinyModelOptions options;
  options.embedding = options.feed_forward = 256;  // what the super-blocks of K-quants need
  options.layers = 1;
  options.trained_context = 1024;
  options.matrix_dtype = options.embedding_dtype = dtype;
  return made[dtype] = test::tiny_model(options);
}

std::vector<DType> weight_types(bool quantised_only = false) {
  std::vector<DType> types;
  for (const DTypeInfo& type : all_dtypes()) {
    const int slot = backends::weight_slot(static_cast<std::uint32_t>(type.dtype));
    const bool made = type.encode != nullptr || type.dtype == DType::f32;
    if (slot >= (quantised_only ? 3 : 0) && made) types.push_back(type.dtype);
  }
  return types;
}

/// The CPU backend with a table of kernels, whatever the machine has. Notes the outputs of every step.
class WithKernels final : public backends::Backend {
 public:
  WithKernels(const backends::Kernels& kernels, int threads)
      : kernels_(kernels), threads_(std::make_shared<ThreadPool>(threads)) {
    backends::CpuOptions options;
    options.threads = threads_;
    cpu_ = backends::make_cpu_backend(std::move(options));
  }
  std::string name() const override { return cpu_->name(); }
  std::vector<backends::DeviceInfo> devices() const override { return cpu_->devices(); }
  std::unique_ptr<backends::Buffer> allocate(int device, std::size_t bytes) override {
    return cpu_->allocate(device, bytes);
  }
  std::optional<std::string> declines(const graph::Graph& graph, const graph::Node& node) const override {
    return cpu_->declines(graph, node);
  }
  std::unique_ptr<backends::Plan> compile(const graph::Graph& graph, backends::NodeRange nodes,
                                          const graph::MemoryPlan& memory) override {
    return std::make_unique<Noted>(
        backends::cpu::compile_plan(graph, nodes, memory, kernels_, threads_, *this), outputs);
  }

  std::vector<std::size_t> outputs;  ///< rows of logits, by step

 private:
  class Noted final : public backends::Plan {
   public:
    Noted(std::unique_ptr<backends::Plan> plan, std::vector<std::size_t>& outputs)
        : plan_(std::move(plan)), outputs_(outputs) {}
    void run(const graph::Step& step, std::byte* scratch) override {
      outputs_.push_back(step.output_rows.size());
      plan_->run(step, scratch);
    }
    std::size_t private_bytes() const override { return plan_->private_bytes(); }

   private:
    std::unique_ptr<backends::Plan> plan_;
    std::vector<std::size_t>& outputs_;
  };

  const backends::Kernels& kernels_;
  std::shared_ptr<ThreadPool> threads_;
  std::unique_ptr<backends::Backend> cpu_;
};

Trace trace_with(const backends::Kernels& kernels, const std::shared_ptr<const models::Model>& model,
                 const Request& request, std::int64_t batch, int threads = 1, DType kv = DType::f16) {
  EngineSettings settings;
  settings.batch = batch;
  settings.context = 640;
  settings.kv = kv;
  EngineOptions options = test::engine_options(settings);
  options.backends = {std::make_shared<WithKernels>(kernels, threads)};
  Engine engine(model, std::move(options));
  return trace_of(engine, request);
}

TEST(LogitRows, AreComputedOnlyWhereATokenIsDrawn) {
  EngineSettings settings;
  settings.batch = 40;
  settings.sequences = 2;
  EngineOptions options = test::engine_options(settings);
  const auto backend = std::make_shared<WithKernels>(backends::kernels_for(detect_isa()), 1);
  options.backends = {backend};
  Engine engine(test::shared_tiny_model(), std::move(options));
  engine.submit(greedy(random_prompt(1, 100), 3));
  engine.submit(greedy(random_prompt(2, 10), 2));
  while (engine.step()) {
  }
  // 40 rows of the first prompt; the other one's 10, which has its first token, and 30 more; its next and the
  // last 30 of the first; then the first alone.
  EXPECT_EQ(backend->outputs, (std::vector<std::size_t>{0, 1, 2, 1, 1}));
}

TEST(LogitBytes, DoNotDependOnThreadsBatchOrPages) {
  for (const DType dtype : weight_types()) {
    const auto model = model_of(dtype);
    // Some types past 512 positions, where attention goes on in another chunk.
    const bool is_long = dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::q4_k;
    const Request request = greedy(random_prompt(1, is_long ? 530 : 75), kLetters);
    EngineSettings alone;
    alone.context = 640;
    Engine engine = make_engine(alone, model);
    const Trace expected = trace_of(engine, request);
    ASSERT_EQ(expected.tokens.size(), static_cast<std::size_t>(kLetters));
    struct Variant {
      int threads;
      std::int64_t batch;
      bool scatter;
    };
    for (const Variant& v :
         {Variant{1, 1, true}, Variant{2, 7, false}, Variant{3, 64, true}, Variant{4, 512, false}}) {
      EngineSettings s = alone;
      s.threads = v.threads;
      s.batch = v.batch;
      s.scatter = v.scatter;
      Engine other = make_engine(s, model);
      EXPECT_EQ(trace_of(other, request), expected)
          << to_string(dtype) << ", " << v.threads << " threads, -b " << v.batch;
    }
  }
}

TEST(LogitBytes, DoNotDependOnFifteenOthersThatComeAndGo) {
  for (const DType dtype : {DType::q4_0, DType::q6_k, DType::bf16}) {
    const auto model = model_of(dtype);
    std::vector<Request> requests;
    for (std::uint64_t i = 0; i < 16; ++i)
      requests.push_back(
          greedy(random_prompt(i, 3 + i * 37 % 190), static_cast<std::int64_t>(2 + i * 11 % 40)));
    std::vector<Trace> expected;
    {
      EngineSettings alone;
      Engine engine = make_engine(alone, model);
      for (const Request& request : requests) expected.push_back(trace_of(engine, request));
    }
    EngineSettings s;
    s.sequences = 16;
    s.batch = 50;
    s.threads = 2;
    s.scatter = true;
    Engine engine = make_engine(s, model);
    std::vector<Trace> traces(requests.size());
    std::size_t submitted = 0, most = 0;
    for (bool more = true; more || submitted < requests.size();) {
      if (submitted < requests.size()) {  // one more with every step
        Request request = requests[submitted];
        test::record(request, traces[submitted++]);
        engine.submit(std::move(request));
      }
      more = engine.step();
      most = std::max(most, engine.stats().running);
    }
    EXPECT_GT(most, 8U);
    for (std::size_t i = 0; i < traces.size(); ++i)
      EXPECT_EQ(traces[i], expected[i]) << to_string(dtype) << ", sequence " << i;
  }
}

TEST(LogitBytes, AreTheSameTwentyTimes) {
  EngineSettings s;
  s.sequences = 2;
  s.threads = 2;
  s.batch = 40;
  Engine engine = make_engine(s, model_of(DType::q4_0));
  const Request request = greedy(random_prompt(1, 100), kLetters);
  const Trace first = trace_of(engine, request);
  for (std::uint64_t i = 1; i < 20; ++i) {
    engine.submit(greedy(random_prompt(50 + i, 5 * i), 3));  // leaves its traces in pages and buffers
    EXPECT_EQ(trace_of(engine, request), first) << "time " << i;
  }
}

TEST(LogitBytes, OfQuantisedWeightsAreTheSameOnEveryInstructionSet) {
  for (const DType dtype : weight_types(true)) {
    const auto model = model_of(dtype);
    const Request request = greedy(random_prompt(2, 40 / test::kSanitizerShare), 3);
    const Trace expected = trace_with(backends::kernels_baseline(), model, request, 64);
    for (const Isa isa : available_isas())
      EXPECT_EQ(trace_with(backends::kernels_for(isa), model, request, 64), expected)
          << to_string(dtype) << ", " << to_string(isa);
  }
}

#if defined(__x86_64__)

/// The machine's tiles, or emulated ones.
class LogitBytesOfAmx : public backends::CpuEmulated {
 protected:
  void SetUp() override {
    if (!ready(Isa::avx512, Isa::amx))
      GTEST_SKIP() << "SKIPPED: this machine lacks AVX-512 or its bfloat16, which the AMX kernels use";
  }
};

TEST_F(LogitBytesOfAmx, AreThoseOfAvx512WhereWeightsAreQuantised) {
  for (const DType dtype : {DType::q4_0, DType::q8_0, DType::q5_k, DType::q6_k}) {
    const auto model = model_of(dtype);
    const Request request = greedy(random_prompt(3, 40), 3);
    const Trace expected = trace_with(backends::kernels_avx512(), model, request, 64);
    EXPECT_EQ(trace_with(backends::kernels_amx(), model, request, 64, 2), expected) << to_string(dtype);
  }
}

/// Largest difference of two traces' logits, over the largest logit.
float largest_difference(const Trace& a, const Trace& b) {
  float difference = 0, largest = 0;
  for (std::size_t at = 0; at < a.logits.size(); at += sizeof(float)) {
    float x = 0, y = 0;
    std::memcpy(&x, a.logits.data() + at, sizeof x);
    std::memcpy(&y, b.logits.data() + at, sizeof y);
    difference = std::max(difference, std::abs(x - y));
    largest = std::max(largest, std::abs(x));
  }
  return difference / largest;
}

TEST_F(LogitBytesOfAmx, DoNotDependOnTheBatchAndAreThoseOfAvx512OrNearThemForBf16) {
  struct Case {
    DType weights, kv;
    std::size_t prompt;
  };
  for (const Case& c : {Case{DType::q4_k, DType::f16, 40}, Case{DType::bf16, DType::bf16, 12},
                        Case{DType::q8_0, DType::q4_0, 12}}) {
    const std::string name = std::string(to_string(c.weights)) + " with " + std::string(to_string(c.kv));
    const auto model = model_of(c.weights);
    const Request request = greedy(random_prompt(4, c.prompt), 2);
    const Trace whole = trace_with(backends::kernels_amx(), model, request, 512, 1, c.kv);
    for (const std::int64_t batch : {1, 7})
      EXPECT_EQ(trace_with(backends::kernels_amx(), model, request, batch, 2, c.kv), whole)
          << name << ", -b " << batch;
    const Trace near = trace_with(backends::kernels_avx512(), model, request, 512, 1, c.kv);
    ASSERT_EQ(near.tokens, whole.tokens) << name;
    EXPECT_LT(largest_difference(near, whole), 1e-3F) << name;
    if (c.weights != DType::bf16) {
      EXPECT_EQ(near, whole) << name;
    }
  }
}

#endif

}  // namespace
}  // namespace quipu::engine
