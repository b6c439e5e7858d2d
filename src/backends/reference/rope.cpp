#include <algorithm>
#include <cmath>

#include "backends/reference/kernels.hpp"

namespace quipu::backends::reference {

Kernel make_kernel(const graph::Rope& op, const Target& target) {
  return {[op, target](const Context& c) {
    const std::vector<double>& inv_freq = *op.inv_freq;
    const auto pairs = static_cast<std::int64_t>(inv_freq.size());
    // Pair i is (first * i, first * i + second).
    const std::int64_t first = op.neox ? 1 : 2, second = op.neox ? pairs : 1;
    for (const graph::SequenceRows& sequence : c.step.sequences)
      for (std::uint32_t r = 0; r < sequence.rows; ++r) {
        const double position = static_cast<double>(sequence.first_position) + r;
        for (std::int64_t head = 0; head < op.heads; ++head) {
          const float* x = c.row(op.x, sequence.first_row + r) + head * op.head_dim;
          float* out = c.row(target.out, sequence.first_row + r) + head * op.head_dim;
          for (std::int64_t i = 0; i < pairs; ++i) {
            const double angle = position * inv_freq[static_cast<std::size_t>(i)];
            const double cosine = std::cos(angle) * op.magnitude, sine = std::sin(angle) * op.magnitude;
            const std::int64_t a = op.first + first * i, b = a + second;
            out[a] = static_cast<float>(x[a] * cosine - x[b] * sine);
            out[b] = static_cast<float>(x[a] * sine + x[b] * cosine);
          }
          std::copy(x, x + op.first, out);
          std::copy(x + op.first + 2 * pairs, x + op.head_dim, out + op.first + 2 * pairs);
        }
      }
  }};
}

}  // namespace quipu::backends::reference
