// Ops that treat every element, or every row, on its own.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/reference/kernels.hpp"

namespace quipu::backends::reference {
namespace {

using graph::Activation;

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// Sources: silu, Elfwing et al. 2018; gelu and its tanh and sigmoid forms, Hendrycks & Gimpel 2016;
/// relu_squared, So et al. 2021.
double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::silu:
      return x * sigmoid(x);
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh: {
      const double inner = std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1.0 + std::tanh(inner));
    }
    case Activation::gelu_quick:
      return x * sigmoid(1.702 * x);
    case Activation::relu:
      return x < 0 ? 0 : x;  // keeps NaN
    case Activation::relu_squared:
      return x < 0 ? 0 : x * x;
    case Activation::sigmoid:
      return sigmoid(x);
    case Activation::tanh:
      return std::tanh(x);
  }
  return x;
}

/// A kernel that computes out[i] = function(a[i], b[i]).
template <class Function>
Kernel elementwise(graph::Value a, graph::Value b, graph::Value out, Function function) {
  return {[=](const Context& c) {
    const float* left = c.data(a);
    const float* right = c.data(b);
    float* result = c.data(out);
    const std::int64_t count = c.rows(out) * c.width(out);
    for (std::int64_t i = 0; i < count; ++i) result[i] = function(left[i], right[i]);
  }};
}

}  // namespace

Kernel make_kernel(const graph::Glu& op, const Target& target) {
  return elementwise(op.gate, op.up, target.out, [op](float gate, float up) {
    if (op.limit > 0) {
      gate = gate > op.limit ? op.limit : gate;
      up = up > op.limit ? op.limit : up < -op.limit ? -op.limit : up;
    }
    return static_cast<float>(activate(op.activation, gate) * (double{up} + op.up_shift));
  });
}

Kernel make_kernel(const graph::Activate& op, const Target& target) {
  return elementwise(op.x, op.x, target.out, [activation = op.activation](float x, float) {
    return static_cast<float>(activate(activation, x));
  });
}

Kernel make_kernel(const graph::Xielu& op, const Target& target) {
  return elementwise(op.x, op.x, target.out, [op](float value, float) {
    const double x = value;
    if (x > 0) return static_cast<float>(op.alpha_p * x * x + op.beta * x);
    return static_cast<float>(op.alpha_n * (std::expm1(std::min(x, double{op.eps})) - x) + op.beta * x);
  });
}

Kernel make_kernel(const graph::GaussianTopK& op, const Target& target) {
  return {[op, target](const Context& c) {
    const std::int64_t n = c.width(op.x);
    for (std::int64_t row = 0; row < c.rows(op.x); ++row) {
      const float* x = c.row(op.x, row);
      double mean = 0, squares = 0;
      for (std::int64_t i = 0; i < n; ++i) mean += x[i];
      mean /= static_cast<double>(n);
      for (std::int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
      const double cut = mean + op.deviations * std::sqrt(squares / static_cast<double>(n));
      for (std::int64_t i = 0; i < n; ++i)
        c.row(target.out, row)[i] = x[i] < cut ? 0 : static_cast<float>(x[i] - cut);  // keeps NaN
    }
  }};
}

Kernel make_kernel(const graph::PositionTemperature& op, const Target& target) {
  return {[op, target](const Context& c) {
    for (const graph::SequenceRows& sequence : c.step.sequences)
      for (std::uint32_t r = 0; r < sequence.rows; ++r) {
        const std::int64_t times = (std::int64_t{sequence.first_position} + r + op.offset) / op.length;
        *c.row(target.out, sequence.first_row + r) =
            static_cast<float>(1 + op.scale * std::log1p(static_cast<double>(times)));
      }
  }};
}

Kernel make_kernel(const graph::Add& op, const Target& target) {
  return elementwise(op.a, op.b, target.out, [](float a, float b) { return a + b; });
}

Kernel make_kernel(const graph::Mul& op, const Target& target) {
  return {[op, target](const Context& c) {
    const bool one = c.width(op.b) == 1;
    for (std::int64_t row = 0; row < c.rows(op.a); ++row)
      for (std::int64_t i = 0; i < c.width(op.a); ++i)
        c.row(target.out, row)[i] = c.row(op.a, row)[i] * c.row(op.b, row)[one ? 0 : i];
  }};
}

Kernel make_kernel(const graph::Scale& op, const Target& target) {
  return elementwise(op.x, op.x, target.out, [factor = op.factor](float x, float) { return x * factor; });
}

Kernel make_kernel(const graph::Mix& op, const Target& target) {
  return {[op, target](const Context& c) {
    const std::int64_t part = c.width(op.x) / op.parts, to = c.width(target.out) / part;
    for (std::int64_t row = 0; row < c.rows(op.x); ++row)
      for (std::int64_t i = 0; i < to; ++i)
        for (std::int64_t e = 0; e < part; ++e) {
          double sum = 0;
          for (std::int64_t j = 0; j < op.parts; ++j)
            sum += double{c.row(op.weights, row)[i * op.parts + j]} * c.row(op.x, row)[j * part + e];
          c.row(target.out, row)[i * part + e] = static_cast<float>(sum);
        }
  }};
}

Kernel make_kernel(const graph::AddAdapted& op, const Target& target) {
  return {[op, target](const Context& c) {
    const bool by_token = c.graph.value(op.x).rows == graph::Rows::tokens;
    for (std::int64_t row = 0; row < c.rows(op.x); ++row) {
      const auto token =
          by_token ? static_cast<std::uint32_t>(row) : c.step.output_rows[static_cast<std::size_t>(row)];
      const auto owner = std::find_if(c.step.sequences.begin(), c.step.sequences.end(),
                                      [&](const auto& s) { return token < s.first_row + s.rows; });
      const float own = owner->adapters.empty() ? 0 : owner->adapters[static_cast<std::size_t>(op.adapter)];
      const float factor = own * op.scale;
      const float *x = c.row(op.x, row), *delta = c.row(op.delta, row);
      float* out = c.row(target.out, row);
      for (std::int64_t i = 0; i < c.width(op.x); ++i)
        out[i] = own == 0 ? x[i] : static_cast<float>(x[i] + static_cast<double>(factor) * delta[i]);
    }
  }};
}

namespace {

/// out[t, i] = function(x[t, i], vector[i]).
template <class Function>
Kernel with_vector(graph::Value x, const TensorView& weight, graph::Value out, Function function) {
  return {[=, vector = decode(weight)](const Context& c) {
    for (std::int64_t row = 0; row < c.rows(x); ++row)
      for (std::int64_t i = 0; i < c.width(x); ++i)
        c.row(out, row)[i] = function(c.row(x, row)[i], vector[static_cast<std::size_t>(i)]);
  }};
}

}  // namespace

Kernel make_kernel(const graph::AddVector& op, const Target& target) {
  return with_vector(op.x, op.vector, target.out, [](float x, float v) { return x + v; });
}

Kernel make_kernel(const graph::MulVector& op, const Target& target) {
  return with_vector(op.x, op.vector, target.out, [](float x, float v) { return x * v; });
}

Kernel make_kernel(const graph::Slice& op, const Target& target) {
  return {[op, target](const Context& c) {
    const std::int64_t part = c.width(op.x) / op.groups;
    for (std::int64_t row = 0; row < c.rows(op.x); ++row)
      for (std::int64_t g = 0; g < op.groups; ++g)
        std::copy_n(c.row(op.x, row) + g * part + op.first, op.count, c.row(target.out, row) + g * op.count);
  }};
}

Kernel make_kernel(const graph::Concat& op, const Target& target) {
  return {[op, target](const Context& c) {
    const std::int64_t a = c.width(op.a) / op.groups,
                       b = op.shared ? c.width(op.b) : c.width(op.b) / op.groups;
    for (std::int64_t row = 0; row < c.rows(op.a); ++row)
      for (std::int64_t g = 0; g < op.groups; ++g) {
        float* out = c.row(target.out, row) + g * (a + b);
        std::copy_n(c.row(op.a, row) + g * a, a, out);
        std::copy_n(c.row(op.b, row) + (op.shared ? 0 : g * b), b, out + a);
      }
  }};
}

Kernel make_kernel(const graph::GatherOutputs& op, const Target& target) {
  return {[op, target](const Context& c) {
    const std::size_t bytes = static_cast<std::size_t>(c.width(op.x)) * sizeof(float);
    for (std::size_t i = 0; i < c.step.output_rows.size(); ++i)
      std::memcpy(c.row(target.out, static_cast<std::int64_t>(i)), c.row(op.x, c.step.output_rows[i]), bytes);
  }};
}

Kernel make_kernel(const graph::Pool& op, const Target& target) {
  return {[op, target](const Context& c) {
    const std::int64_t width = c.width(op.x);
    for (std::size_t i = 0; i < c.step.output_rows.size(); ++i) {
      const std::int64_t last = c.step.output_rows[i];
      std::int64_t first = 0;
      for (const graph::SequenceRows& sequence : c.step.sequences)
        if (sequence.rows > 0 && sequence.first_row <= last) first = sequence.first_row;
      float* out = c.row(target.out, static_cast<std::int64_t>(i));
      if (op.kind == graph::Pool::Kind::first) {
        std::copy_n(c.row(op.x, first), width, out);
        continue;
      }
      for (std::int64_t e = 0; e < width; ++e) {
        double sum = 0;
        for (std::int64_t row = first; row <= last; ++row) sum += c.row(op.x, row)[e];
        out[e] = static_cast<float>(sum / static_cast<double>(last - first + 1));
      }
    }
  }};
}

}  // namespace quipu::backends::reference
