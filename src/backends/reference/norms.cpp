#include <cmath>

#include "backends/reference/kernels.hpp"

namespace quipu::backends::reference {
namespace {

/// Runs `function(x, weight, bias, out, n)` on every group of the rows. A weight of several rows has one for
/// each group of a row.
template <class Function>
Kernel by_groups(graph::Value x, const Target& target, const TensorView& weight,
                 const std::optional<TensorView>& bias, Function function) {
  return {[=, n = weight.width(), weights = decode(weight),
           biases = decode(bias, weight.elements())](const Context& c) {
    const std::int64_t groups = c.width(x) / n, own = static_cast<std::int64_t>(weights.size()) / n;
    for (std::int64_t row = 0; row < c.rows(x); ++row)
      for (std::int64_t g = 0; g < groups; ++g) {
        const std::int64_t of_group = g % own * n;
        function(c.row(x, row) + g * n, weights.data() + of_group, biases.data() + of_group,
                 c.row(target.out, row) + g * n, n);
      }
  }};
}

}  // namespace

Kernel make_kernel(const graph::RmsNorm& op, const Target& target) {
  return by_groups(
      op.x, target, op.weight, std::nullopt,
      [eps = op.eps](const float* x, const float* weight, const float*, float* out, std::int64_t n) {
        double squares = 0;
        for (std::int64_t i = 0; i < n; ++i) squares += double{x[i]} * x[i];
        const double factor = 1.0 / std::sqrt(squares / static_cast<double>(n) + eps);
        for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(x[i] * factor * weight[i]);
      });
}

Kernel make_kernel(const graph::LayerNorm& op, const Target& target) {
  return by_groups(
      op.x, target, op.weight, op.bias,
      [eps = op.eps](const float* x, const float* weight, const float* bias, float* out, std::int64_t n) {
        double sum = 0, squares = 0;
        for (std::int64_t i = 0; i < n; ++i) sum += x[i];
        const double mean = sum / static_cast<double>(n);
        for (std::int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
        const double factor = 1.0 / std::sqrt(squares / static_cast<double>(n) + eps);
        for (std::int64_t i = 0; i < n; ++i)
          out[i] = static_cast<float>((x[i] - mean) * factor * weight[i] + bias[i]);
      });
}

}  // namespace quipu::backends::reference
