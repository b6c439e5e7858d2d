// A compiled plan and its runs.
#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "backends/cpu/cpu_plan.hpp"
#include "backends/cpu/plan_layout.hpp"
#include "backends/cpu/schedule.hpp"
#include "core/thread_balance.hpp"
#include "core/thread_governor.hpp"

namespace quipu::backends::cpu {
namespace {

using graph::Graph;
using graph::MemoryPlan;

class CpuPlan final : public Plan {
 public:
  CpuPlan(const Graph& graph, NodeRange nodes, const MemoryPlan& memory, const Kernels& kernels,
          std::shared_ptr<ThreadPool> threads, Backend& owner)
      : threads_(std::move(threads)),
        many_ways_(*threads_),
        single_ways_(*threads_),
        spent_(size(threads_->size())) {
    PrivateMemory p = lay_out(graph, nodes, memory, kernels, threads_->size());
    many_ = build_schedule(graph, nodes, memory, kernels, p, counters_, false);
    single_ = build_schedule(graph, nodes, memory, kernels, p, counters_, true);
    bytes_ = std::max<std::size_t>(p.bytes, 64);
    memory_ = owner.allocate(0, bytes_);
    places_.resize(size(memory.max_tokens));
    adapter_used_.resize(size(graph.adapters));
    measures_.reserve(spent_.size());
    context_.private_memory = memory_->data();
    context_.places = places_.data();
    task_ = [this](int thread) {
      bool barrier = false;
      for (const std::unique_ptr<PlanStep>& step : *schedule_) {
        barrier |= step->barrier_before;
        if (step->adapter >= 0 && !adapter_used_[size(step->adapter)]) continue;
        if (step->idle(context_)) continue;
        if (std::exchange(barrier, false)) threads_->barrier();
        const double products = measured_ ? step->products(context_, thread) : 0;
        if (products == 0) {
          step->run(context_, thread);
          continue;
        }
        const auto began = Clock::now();
        step->run(context_, thread);
        ThreadBalance::Spent& spent = spent_[size(thread)].total;
        spent.work += products;
        spent.seconds += seconds_since(began);
      }
    };
  }

  void run(const graph::Step& step, std::byte* scratch) override {
    std::uint32_t index = 0;
    std::fill(adapter_used_.begin(), adapter_used_.end(), std::uint8_t{0});
    for (const graph::SequenceRows& s : step.sequences) {
      for (std::size_t i = 0; i < s.adapters.size(); ++i)
        if (s.adapters[i] != 0) adapter_used_[i] = 1;
      for (std::uint32_t i = 0; i < s.rows; ++i)
        places_[s.first_row + i] = {index, s.first_position + static_cast<std::int32_t>(i)};
      ++index;
    }
    for (const std::unique_ptr<std::atomic<std::uint32_t>>& counter : counters_)
      counter->store(0, std::memory_order_relaxed);
    context_.step = &step;
    context_.scratch = scratch;
    context_.tokens = step.tokens.size();
    context_.outputs = step.output_rows.size();
    const bool single = step.tokens.size() == 1;
    schedule_ = single ? &single_ : &many_;
    Ways& ways = single ? single_ways_ : many_ways_;
    context_.bounds = ways.balance.bounds(ways.governor.threads());
    measured_ = context_.threads() > 1 && ++ways.runs % (single ? kSinglesPerMeasure : 1) == 0;
    const auto began = Clock::now();
    const double idle = threads_->run(task_, context_.threads());
    ways.governor.ran(step.tokens.size(), seconds_since(began), idle);
    if (measured_) {
      measures_.clear();
      for (std::size_t i = 0; i < size(context_.threads()); ++i)
        measures_.push_back(std::exchange(spent_[i].total, {}));
      ways.balance.ran(measures_);
    }
  }

  std::size_t private_bytes() const override { return bytes_; }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point began) {
    return std::chrono::duration<double>(Clock::now() - began).count();
  }
  /// A measured run reads the clock twice a linear: some 10 us of a small model's token of 5 ms.
  static constexpr unsigned kSinglesPerMeasure = 4;

  /// How many threads run a schedule, and how its work is shared out.
  struct Ways {
    explicit Ways(const ThreadPool& pool) : governor(pool.size()), balance(pool.size(), pool.speeds()) {}
    ThreadGovernor governor;
    ThreadBalance balance;
    unsigned runs = 0;
  };
  struct alignas(64) OwnSpent {  // one cache line a thread
    ThreadBalance::Spent total;
  };

  std::shared_ptr<ThreadPool> threads_;
  Ways many_ways_, single_ways_;
  bool measured_ = false;
  std::vector<OwnSpent> spent_;
  std::vector<ThreadBalance::Spent> measures_;
  Counters counters_;
  Steps many_, single_;
  Steps* schedule_ = nullptr;
  std::unique_ptr<Buffer> memory_;
  std::size_t bytes_ = 0;
  std::vector<RowPlace> places_;
  std::vector<std::uint8_t> adapter_used_;  // by this step
  RunContext context_;
  std::function<void(int)> task_;
};

}  // namespace

std::unique_ptr<Plan> compile_plan(const Graph& graph, NodeRange nodes, const MemoryPlan& memory,
                                   const Kernels& kernels, std::shared_ptr<ThreadPool> threads,
                                   Backend& owner) {
  return std::make_unique<CpuPlan>(graph, nodes, memory, kernels, std::move(threads), owner);
}

}  // namespace quipu::backends::cpu
