// Steps of the experts of a layer. Every pair of a row and one of its experts is a row of work of its own:
// the pairs are put in order of their expert, so that each expert's matrix is read once, for all rows that
// chose it, by the same kernels as any linear. A matrix for each head is the same with heads in place of
// experts.
#pragma once

#include "backends/cpu/plan_steps.hpp"

namespace quipu::backends::cpu {

/// Where pairs stand: private memory that a GroupStep fills. A pair's number is row * used + j.
struct Grouping {
  PrivateAt memory;
  std::size_t groups = 0, pairs = 0;  ///< room for

  static std::size_t bytes(std::size_t groups, std::size_t pairs) {
    return align64((groups + 1) * 4) + 2 * align64(pairs * 4);
  }
  /// [groups + 1] where a group's pairs begin in the order.
  std::uint32_t* begin(const RunContext& c) const {
    return reinterpret_cast<std::uint32_t*>(memory.at(c, 0));
  }
  /// [pairs] pair numbers in order.
  std::uint32_t* order(const RunContext& c) const { return begin(c) + align64((groups + 1) * 4) / 4; }
  /// [pairs] the place in the order of a pair.
  std::uint32_t* place(const RunContext& c) const { return order(c) + align64(pairs * 4) / 4; }
};

struct RouteStep final : StepBase {
  ValueAt logits, out;
  FloatWeight bias, expert_scale;
  RouteArgs settings;
  PrivateAt work;
  Cut cut;
  void run(const RunContext& c, int thread) override;
};

/// Thread 0 orders the pairs; within an expert they keep the order of their rows.
struct GroupStep final : StepBase {
  ValueAt route;  ///< of heads: any value with the rows that are meant
  bool heads = false;
  std::size_t used = 0, groups = 0;
  Grouping to;
  void run(const RunContext& c, int thread) override;
};

/// The quantised activations of every pair, in order.
struct QuantizePairsStep final : StepBase {
  ValueAt x;
  std::size_t used = 0, width = 0;  ///< a pair's x: the row when it is `width` wide, else its j-th part
  Grouping grouping;
  QuantizedAt to;
  void run(const RunContext& c, int thread) override;
};

struct ExpertsLinearStep final : StepBase {
  TensorView weight;
  FloatWeight bias;
  ValueAt x, out;
  std::size_t used = 0;
  int slot = 0;
  bool quantized = false;
  Grouping grouping;
  QuantizedAt from;
  PrivateAt work;
  void run(const RunContext& c, int thread) override;
  double products(const RunContext& c, int thread) const override {
    const Range r = columns(c, thread);
    return static_cast<double>((r.end - r.begin) * static_cast<std::size_t>(weight.width()) * c.rows(x.rows) *
                               used);
  }

 private:
  Range columns(const RunContext& c, int thread) const {
    return c.share(static_cast<std::size_t>(weight.shape[1]), thread, 16);
  }
};

struct CombineStep final : StepBase {
  ValueAt x, route, out;
  std::size_t used = 0;
  std::size_t grain = 16;
  void run(const RunContext& c, int thread) override;
};

}  // namespace quipu::backends::cpu
