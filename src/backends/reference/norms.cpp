#include <cmath>

#include "backends/reference/kernels.hpp"

namespace quipu::backends::reference {

Kernel make_kernel(const graph::RmsNorm& op, const Target& target) {
  return {[op, target, weight = decode(op.weight)](const Context& c) {
    const auto n = static_cast<std::int64_t>(weight.size());
    const std::int64_t groups = c.rows(op.x) * (c.width(op.x) / n);
    for (std::int64_t g = 0; g < groups; ++g) {
      const float* x = c.data(op.x) + g * n;
      float* out = c.data(target.out) + g * n;
      double squares = 0;
      for (std::int64_t i = 0; i < n; ++i) squares += double{x[i]} * x[i];
      const double factor = 1.0 / std::sqrt(squares / static_cast<double>(n) + op.eps);
      for (std::int64_t i = 0; i < n; ++i)
        out[i] = static_cast<float>(x[i] * factor * weight[static_cast<std::size_t>(i)]);
    }
  }};
}

Kernel make_kernel(const graph::LayerNorm& op, const Target& target) {
  return {
      [op, target, weight = decode(op.weight), bias = decode(op.bias, op.weight.width())](const Context& c) {
        const auto n = static_cast<std::int64_t>(weight.size());
        for (std::int64_t row = 0; row < c.rows(op.x); ++row) {
          const float* x = c.row(op.x, row);
          float* out = c.row(target.out, row);
          double sum = 0, squares = 0;
          for (std::int64_t i = 0; i < n; ++i) sum += x[i];
          const double mean = sum / static_cast<double>(n);
          for (std::int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
          const double factor = 1.0 / std::sqrt(squares / static_cast<double>(n) + op.eps);
          for (std::int64_t i = 0; i < n; ++i)
            out[i] = static_cast<float>((x[i] - mean) * factor * weight[static_cast<std::size_t>(i)] +
                                        bias[static_cast<std::size_t>(i)]);
        }
      }};
}

}  // namespace quipu::backends::reference
