// What a layer costs in waiting: barriers of the CPU backend's schedules.
#include <gtest/gtest.h>

#include "backends/cpu/schedule.hpp"
#include "core/cpu_features.hpp"
#include "graph/memory_plan.hpp"
#include "models/model.hpp"
#include "tiny_model.hpp"

namespace quipu {
namespace {

namespace cpu = backends::cpu;

struct Count {
  int in_short = 0;  ///< where the context fits one chunk: nothing is merged
  int all = 0;
};

Count barriers(std::uint32_t layers, bool single) {
  test::TinyModelOptions options;
  options.layers = layers;
  options.matrix_dtype = options.embedding_dtype = DType::q8_0;
  test::TemporaryFolder folder;
  test::write_tiny_model(folder / "tiny.gguf", options);
  const auto model = models::Model::load(folder / "tiny.gguf");
  const graph::Graph graph = model->build_graph();
  const graph::MemoryPlan memory = graph::plan_memory(graph, 64, 4);
  const backends::NodeRange nodes{0, graph.nodes.size()};
  const backends::Kernels& kernels = backends::kernels_for(detect_isa());
  cpu::PrivateMemory own = cpu::lay_out(graph, nodes, memory, kernels, 2);
  cpu::Counters counters;
  const cpu::Steps steps = cpu::build_schedule(graph, nodes, memory, kernels, own, counters, single);
  Count count;
  for (const auto& step : steps) {
    if (!step->barrier_before) continue;
    ++count.all;
    if (dynamic_cast<const cpu::MergeStep*>(step.get()) == nullptr) ++count.in_short;
  }
  return count;
}

// By hand, for a block of Llama and one token. Threads wait before: the first norm (for the sum before it),
// attention (for keys and values), the quantising of its result, the second norm, the quantising of the gated
// product; and where the context takes several chunks, their merge. Several tokens are normed and quantised
// in shares, so that every product waits for its input too, and turned in shares of rows.
TEST(Barriers, OfABlockAreFew) {
  const auto more = [](bool single) {
    const Count two = barriers(2, single), five = barriers(5, single);
    return Count{(five.in_short - two.in_short) / 3, (five.all - two.all) / 3};
  };
  EXPECT_LE(more(true).in_short, 5);
  EXPECT_LE(more(true).all, 6);
  EXPECT_LE(more(false).all, 10);
  EXPECT_GE(more(true).in_short, 4)
      << "too few to be right: attention and three products need what others made";
}

}  // namespace
}  // namespace quipu
