#include "type_report.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "output.hpp"

namespace quipu::app {

void tell_fallbacks(std::span<const gguf::TensorInfo> tensors, std::span<const convert::TensorPlan> plan) {
  std::map<std::pair<DType, DType>, std::vector<std::size_t>> changed;
  for (std::size_t i = 0; i < plan.size(); ++i)
    if (plan[i].wanted) changed[{*plan[i].wanted, plan[i].dtype}].push_back(i);
  for (const auto& [types, indices] : changed) {
    const gguf::TensorInfo& first = tensors[indices.front()];
    write_stderr(fmt::format("{} {} {} instead of {}: rows that are no multiple of {} (first: {}, {})\n",
                             indices.size(), indices.size() == 1 ? "tensor gets" : "tensors get",
                             to_string(types.second), to_string(types.first), info(types.first).block_size,
                             printable(first.name), shape_text({first.name, first.dtype, first.shape})));
  }
}

}  // namespace quipu::app
