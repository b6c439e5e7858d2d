// Program: placement on several backends, budgets, and the checks that stand before every step.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "backends/host_memory.hpp"
#include "core/error.hpp"
#include "harness.hpp"

namespace quipu::test {
namespace {

using backends::Backend;
using backends::Program;
using graph::Builder;
using graph::Value;

/// The reference backend under another name, declining some ops and counting its plans.
class Picky final : public Backend {
 public:
  Picky(std::string name, std::vector<std::string> declined)
      : name_(std::move(name)), declined_(std::move(declined)), inner_(backends::make_reference_backend()) {}
  std::string name() const override { return name_; }
  std::vector<backends::DeviceInfo> devices() const override { return inner_->devices(); }
  std::unique_ptr<backends::Buffer> allocate(int device, std::size_t bytes) override {
    return inner_->allocate(device, bytes);
  }
  std::optional<std::string> declines(const graph::Graph&, const graph::Node& node) const override {
    for (const std::string& op : declined_)
      if (op == graph::op_name(node.op)) return "no kernel for " + op;
    return {};
  }
  std::unique_ptr<backends::Plan> compile(const graph::Graph& graph, backends::NodeRange nodes,
                                          const graph::MemoryPlan& memory) override {
    ranges.push_back(nodes);
    return inner_->compile(graph, nodes, memory);
  }
  std::vector<backends::NodeRange> ranges;

 private:
  std::string name_;
  std::vector<std::string> declined_;
  std::unique_ptr<Backend> inner_;
};

/// A small decoder-like graph: attention and a feed-forward over 64 floats.
OpCase block() {
  static const Weight gate = random_weight(DType::q8_0, 64, 96, 11),
                      down = random_weight(DType::f16, 96, 64, 12),
                      norm = random_weight(DType::f32, 64, 1, 13);
  return {{random_table(80, 64, 1)}, [](Builder& b, std::span<const Value> x) {
            const Value normed = b.rms_norm(x[0], norm.view, 1e-5F);
            const Value attended = b.attention({.q = normed,
                                                .k = x[0],
                                                .v = normed,
                                                .layer = 0,
                                                .heads = 4,
                                                .kv_heads = 4,
                                                .head_dim = 16,
                                                .v_dim = 16,
                                                .scale = 0.25F,
                                                .sinks = std::nullopt});
            const Value mixed = b.add(attended, x[0]);
            const Value hidden = b.activate(b.linear(mixed, gate.view), graph::Activation::silu);
            return b.add(mixed, b.linear(hidden, down.view));
          }};
}
TestCache block_cache() { return {DType::f16, DType::f16, 4, 16, 16, 4}; }

TEST(Program, PlacesDeclinedNodesOnTheNextBackendWithTheSameResult) {
  const BatchSequence sequence = whole_sequence(70, {3, 1});
  TestCache cache = block_cache();
  OpProgram plain(block(), {backends::make_reference_backend()}, 70);
  const std::vector<float> want = plain.run({&sequence, 1}, &cache);

  const auto first = std::make_shared<Picky>("first", std::vector<std::string>{"attention", "activate"});
  const std::shared_ptr<Backend> second = backends::make_reference_backend();
  OpProgram mixed(block(), {first, second}, 70);
  // embed, rms_norm | attention | add, linear | activate | linear, add, gather_outputs
  EXPECT_EQ(mixed.program().placement(), (std::vector<std::size_t>{0, 0, 1, 0, 0, 1, 0, 0, 0}));
  ASSERT_EQ(first->ranges.size(), 3U);
  EXPECT_EQ(first->ranges[0].begin, 0U);
  EXPECT_EQ(first->ranges[0].end, 2U);
  EXPECT_EQ(first->ranges[1].begin, 3U);
  EXPECT_EQ(first->ranges[1].end, 5U);
  EXPECT_EQ(first->ranges[2].begin, 6U);
  EXPECT_EQ(first->ranges[2].end, 9U);
  TestCache other = block_cache();
  EXPECT_EQ(byte_difference(mixed.run({&sequence, 1}, &other), want), "");
}

TEST(Program, ListsEveryBackendsReasonForANodeNobodyRuns) {
  const BackendList backends{
      std::make_shared<Picky>("first", std::vector<std::string>{"attention"}),
      std::make_shared<Picky>("second", std::vector<std::string>{"linear", "attention"})};
  try {
    OpProgram program(block(), backends, 4);
    FAIL() << "placed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    for (const char* part :
         {"'op'", "attention", "first: no kernel for attention", "second: no kernel for attention"})
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
  }
}

TEST(Program, NeedsABackend) { EXPECT_THROW(OpProgram(block(), {}, 4), Error); }

TEST(Program, ChargesItsScratchToTheFirstDeviceAndGivesItBack) {
  const std::shared_ptr<Backend> backend = backends::make_reference_backend();
  {
    const OpProgram program(block(), {backend}, 64);
    const std::size_t scratch = const_cast<OpProgram&>(program).program().scratch_bytes();
    EXPECT_EQ(backend->devices()[0].used_bytes, scratch);
    EXPECT_GE(scratch, 64U * 64 * sizeof(float));
  }
  EXPECT_EQ(backend->devices()[0].used_bytes, 0U);
}

TEST(Program, RefusesABudgetItDoesNotFitAndNamesTheDevice) {
  const std::shared_ptr<Backend> backend = backends::make_reference_backend(10000);
  try {
    OpProgram program(block(), {backend}, 64);
    FAIL() << "fits";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_NE(error.message().find("reference:0"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("10000"), std::string::npos) << error.message();
  }
  EXPECT_EQ(backend->devices()[0].used_bytes, 0U);
}

TEST(Program, RunsStepsWithoutTokensOrWithoutOutputs) {
  TestCache cache = block_cache();
  OpProgram program(block(), {backends::make_reference_backend()}, 70);
  EXPECT_TRUE(program.run({}, &cache).empty());
  const BatchSequence sequence = whole_sequence(5, {2});
  EXPECT_TRUE(program.run({&sequence, 1}, &cache, {}).empty());
  EXPECT_FALSE(cache.untouched(2, 4));  // keys and values are stored all the same
  const std::vector<BatchSequence> with_an_empty_one{{{}, 0, {}}, sequence, {{}, 0, {}}};
  EXPECT_EQ(program.run(with_an_empty_one, &cache).size(), 5U * 64);
}

TEST(Program, SurvivesBeingMoved) {
  TestCache cache = block_cache();
  OpProgram program(block(), {backends::make_reference_backend()}, 5);
  const BatchSequence sequence = whole_sequence(5, {2});
  const std::vector<float> want = program.run({&sequence, 1}, &cache);
  OpProgram moved(std::move(program));
  EXPECT_EQ(byte_difference(moved.run({&sequence, 1}, &cache), want), "");
}

// ---- step checks ----

class StepChecks : public testing::Test {
 protected:
  /// A good step of two sequences; each test spoils one thing.
  struct Parts {
    std::vector<std::int32_t> tokens{0, 1, 2, 3, 4};
    std::vector<std::uint32_t> pages_a{0, 1}, pages_b{2};
    std::vector<graph::SequenceRows> sequences{{0, 2, 63, pages_a}, {2, 3, 0, pages_b}};
    std::vector<graph::KvLayer> kv;
    std::vector<std::uint32_t> output_rows{1, 4};
    std::vector<float> outputs = std::vector<float>(128);
    float* to = outputs.data();
  };
  Parts good() {
    Parts parts;
    parts.kv = {cache_.layer()};
    return parts;
  }
  void run(const Parts& p) {
    graph::Step step;
    step.tokens = p.tokens;
    step.sequences = p.sequences;
    step.kv = p.kv;
    step.output_rows = p.output_rows;
    step.outputs = p.to;
    program_.program().run(step);
  }
  void expect_refused(const std::function<void(Parts&)>& spoil, std::initializer_list<const char*> parts) {
    Parts p = good();
    spoil(p);
    try {
      run(p);
      ADD_FAILURE() << "accepted; expected a message with " << *parts.begin();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      for (const char* part : parts)
        EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
    }
  }

  TestCache cache_ = block_cache();
  OpProgram program_{block(), {backends::make_reference_backend()}, 6};
};

TEST_F(StepChecks, AcceptAGoodStep) { EXPECT_NO_THROW(run(good())); }

TEST_F(StepChecks, Tokens) {
  expect_refused([](Parts& p) { p.tokens[3] = 80; }, {"token 80", "row 3", "80"});
  expect_refused([](Parts& p) { p.tokens[0] = -1; }, {"token -1"});
  expect_refused([](Parts& p) { p.tokens.resize(7); }, {"7 tokens", "6"});
  expect_refused([](Parts& p) { p.tokens.resize(6); }, {"5 rows", "6 tokens"});
  expect_refused([](Parts& p) { p.tokens.resize(4), p.output_rows.clear(); }, {"5 rows", "4 tokens"});
}

TEST_F(StepChecks, Sequences) {
  expect_refused([](Parts& p) { p.sequences[1].first_row = 3; }, {"sequence 1", "row 3", "2"});
  expect_refused([](Parts& p) { p.sequences[1].first_row = 1; }, {"sequence 1", "row 1"});
  expect_refused([](Parts& p) { std::swap(p.sequences[0], p.sequences[1]); }, {"sequence 0", "row 2"});
  expect_refused([](Parts& p) { p.sequences[1].first_position = -1; }, {"sequence 1", "-1"});
  expect_refused([](Parts& p) { p.sequences[1].first_position = std::numeric_limits<std::int32_t>::max(); },
                 {"sequence 1", "2147483647"});
  expect_refused([](Parts& p) { p.sequences.pop_back(); }, {"2 rows", "5 tokens"});
  expect_refused([](Parts& p) { p.sequences[1].rows = std::numeric_limits<std::uint32_t>::max(); },
                 {"sequence 1"});
}

TEST_F(StepChecks, Pages) {
  expect_refused([](Parts& p) { p.sequences[0].pages = p.sequences[0].pages.first(1); },
                 {"sequence 0", "1 pages", "65"});
  expect_refused([](Parts& p) { p.sequences[1].pages = {}; }, {"sequence 1", "0 pages"});
  // Sequence 0 writes positions 63 and 64, that is pages 0 and 1.
  expect_refused(
      [](Parts& p) {
        p.pages_b[0] = 1;
        p.sequences[1].pages = p.pages_b;
      },
      {"page 1", "sequence 0", "sequence 1"});
  expect_refused(
      [](Parts& p) {
        p.pages_a[1] = 0;
        p.sequences[0].pages = p.pages_a;
      },
      {"page 0", "sequence 0"});
}

TEST_F(StepChecks, SharedPagesThatAreOnlyReadAreFine) {
  Parts p = good();
  // Both sequences continue a common page 3, each in a page of its own.
  p.pages_a = {3, 0};
  p.pages_b = {3, 1};
  p.sequences = {{0, 2, 64, p.pages_a}, {2, 3, 64, p.pages_b}};
  EXPECT_NO_THROW(run(p));
}

TEST_F(StepChecks, Cache) {
  expect_refused([](Parts& p) { p.kv.clear(); }, {"0 cache layers", "1"});
  expect_refused([](Parts& p) { p.kv.push_back(p.kv[0]); }, {"2 cache layers", "1"});
  expect_refused([](Parts& p) { p.kv[0].k = nullptr; }, {"layer 0", "keys"});
  expect_refused([](Parts& p) { p.kv[0].v_page_bytes = 64 * 4 * 16 * 2 - 1; },
                 {"layer 0", "values", "8191", "8192"});
  expect_refused([](Parts& p) { p.kv[0].k_dtype = DType::f32; }, {"layer 0", "keys"});  // pages too small
  expect_refused([](Parts& p) { p.kv[0].k_dtype = DType::q4_0; }, {"layer 0", "keys", "Q4_0"});
  expect_refused([](Parts& p) { p.kv[0].k_dtype = DType::q4_k; }, {"keys are Q4_K", "Q5_1 or IQ4_NL"});
  expect_refused([](Parts& p) { p.kv[0].v_dtype = DType::q8_0; }, {"layer 0", "values", "16", "Q8_0"});
}

TEST_F(StepChecks, Outputs) {
  expect_refused([](Parts& p) { p.output_rows = {0, 5}; }, {"row 5", "5 rows"});
  expect_refused([](Parts& p) { p.output_rows = {3, 2}; }, {"row 2", "row 3"});
  expect_refused([](Parts& p) { p.output_rows = {3, 3}; }, {"row 3"});
  expect_refused([](Parts& p) { p.output_rows.resize(7); }, {"7 outputs"});
  expect_refused([](Parts& p) { p.to = nullptr; }, {"2 outputs"});
}

// ---- host memory ----

TEST(HostDevice, CountsWhatIsAllocatedAgainstItsBudget) {
  const auto device = backends::HostDevice::create("test:0", "a test", 1000);
  auto first = device->allocate(600);
  EXPECT_EQ(device->info().used_bytes, 600U);
  EXPECT_EQ(device->info().memory_bytes, 1000U);
  try {
    (void)device->allocate(401);
    FAIL() << "over budget";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    for (const char* part : {"test:0", "401", "400", "1000"})
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
  }
  auto second = device->allocate(400);
  first.reset();
  EXPECT_EQ(device->info().used_bytes, 400U);
}

TEST(HostDevice, GivesZeroedAlignedMemory) {
  const auto device = backends::HostDevice::create("test:0", "a test", UINT64_MAX);
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{100}, std::size_t{5000}, (std::size_t{17} << 20) + 3}) {
    const auto buffer = device->allocate(size);
    EXPECT_EQ(buffer->size(), size);
    const auto address = reinterpret_cast<std::uintptr_t>(buffer->data());
    EXPECT_EQ(address % (size > (std::size_t{16} << 20) ? std::size_t{2} << 20 : 64), 0U) << size;
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(buffer->data()[i], std::byte{0});
    buffer->data()[0] = buffer->data()[size - 1] = std::byte{1};
  }
}

TEST(HostDevice, AllocatesNothingAndMoreThanThereIs) {
  const auto device = backends::HostDevice::create("test:0", "a test", UINT64_MAX);
  const auto nothing = device->allocate(0);
  EXPECT_EQ(nothing->size(), 0U);
  EXPECT_NE(nothing->data(), nullptr);
  EXPECT_THROW((void)device->allocate(std::size_t{1} << 62), Error);
  EXPECT_THROW((void)device->allocate(SIZE_MAX), Error);
  EXPECT_EQ(device->info().used_bytes, 0U);
}

TEST(HostDevice, OutlivesItsOwnerWhileABufferDoes) {
  auto device = backends::HostDevice::create("test:0", "a test", 100);
  auto buffer = device->allocate(50);
  device.reset();
  buffer->data()[49] = std::byte{1};
  buffer.reset();
}

}  // namespace
}  // namespace quipu::test
