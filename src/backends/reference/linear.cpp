// Matrices: embedding rows and products, both straight from the encoded weights.
#include <array>
#include <cstddef>

#include "backends/reference/kernels.hpp"

namespace quipu::backends::reference {

/// Each product is exact in double. Eight partial sums, so that a compiler may use
/// vectors.
double dot(const float* x, const float* w, std::size_t n) {
  std::array<double, 8> partial{};
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (std::size_t l = 0; l < 8; ++l)
      partial[l] += static_cast<double>(x[i + l]) * static_cast<double>(w[i + l]);
  for (std::size_t l = 0; i < n; ++i, ++l)
    partial[l] += static_cast<double>(x[i]) * static_cast<double>(w[i]);
  double sum = 0;
  for (const double p : partial) sum += p;
  return sum;
}

Kernel make_kernel(const graph::Embed& op, const Target& target) {
  return {[op, target](const Context& c) {
    const std::size_t row_bytes = op.weight.row_bytes();
    for (std::size_t t = 0; t < c.step.tokens.size(); ++t)
      info(op.weight.dtype)
          .decode(op.weight.data + static_cast<std::size_t>(c.step.tokens[t]) * row_bytes,
                  c.row(target.out, static_cast<std::int64_t>(t)),
                  static_cast<std::size_t>(op.weight.width()));
  }};
}

Kernel make_kernel(const graph::EmbedPositions& op, const Target& target) {
  return {[op, target](const Context& c) {
    for (const graph::SequenceRows& sequence : c.step.sequences)
      for (std::uint32_t r = 0; r < sequence.rows; ++r)
        info(op.weight.dtype)
            .decode(op.weight.data +
                        (static_cast<std::size_t>(sequence.first_position) + r) * op.weight.row_bytes(),
                    c.row(target.out, sequence.first_row + r), static_cast<std::size_t>(op.weight.width()));
  }};
}

Kernel make_kernel(const graph::EmbedTypes& op, const Target& target) {
  return {[op, target](const Context& c) {
    for (std::size_t t = 0; t < c.step.tokens.size(); ++t) {
      const auto type = static_cast<std::size_t>(c.step.types.empty() ? 0 : c.step.types[t]);
      info(op.weight.dtype)
          .decode(op.weight.data + type * op.weight.row_bytes(),
                  c.row(target.out, static_cast<std::int64_t>(t)),
                  static_cast<std::size_t>(op.weight.width()));
    }
  }};
}

Kernel make_kernel(const graph::Linear& op, const Target& target) {
  const auto k = static_cast<std::size_t>(op.weight.width());
  return {[op, target, k, bias = decode(op.bias, op.weight.rows())](const Context& c) {
            auto* weights = reinterpret_cast<float*>(c.work);
            const DTypeInfo& dtype = info(op.weight.dtype);
            const std::size_t row_bytes = op.weight.row_bytes();
            const std::int64_t rows = c.rows(target.out);
            if (rows == 0) return;
            for (std::int64_t n = 0; n < op.weight.rows(); ++n) {
              dtype.decode(op.weight.data + static_cast<std::size_t>(n) * row_bytes, weights, k);
              for (std::int64_t t = 0; t < rows; ++t)
                c.row(target.out, t)[n] =
                    static_cast<float>(dot(c.row(op.x, t), weights, k) + bias[static_cast<std::size_t>(n)]);
            }
          },
          k * sizeof(float)};
}

}  // namespace quipu::backends::reference
