#include "backends/cpu/plan_order.hpp"

#include "backends/cpu/expert_steps.hpp"
#include "backends/cpu/plan_steps.hpp"

namespace quipu::backends::cpu {

void place_barriers(Steps& steps) {
  std::vector<Access> open;
  for (std::unique_ptr<PlanStep>& step : steps) {
    for (const Access& a : step->accesses) {
      for (const Access& b : open) {
        if (!(a.write || b.write) || !meet(a, b)) continue;
        const bool apart =
            a.cut == b.cut && a.cut.kind != Cut::Kind::any && a.begin == b.begin && a.end == b.end;
        if (!apart) step->barrier_before = true;
      }
    }
    if (step->barrier_before) open.clear();
    open.insert(open.end(), step->accesses.begin(), step->accesses.end());
  }
}

void link_linears(Steps& steps) {
  const LinearStep* next = nullptr;
  for (std::size_t i = 2 * steps.size(); i-- > 0;) {
    PlanStep* step = steps[i % steps.size()].get();
    if (auto* linear = dynamic_cast<LinearStep*>(step)) {
      linear->next = next;
      if (linear->adapter < 0) next = linear;
    } else if (dynamic_cast<ExpertsLinearStep*>(step) != nullptr) {
      next = nullptr;
    }
  }
}

}  // namespace quipu::backends::cpu
