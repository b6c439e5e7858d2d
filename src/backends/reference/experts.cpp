// Mixture of experts: routing, the experts' matrices, the weighted sum. And a matrix for each head.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "backends/reference/kernels.hpp"

namespace quipu::backends::reference {
namespace {

using graph::kMaxExperts;

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// Numbers of the `count` largest of `values`, falling, the lower number first when equal; a NaN counts as
/// the least.
std::vector<std::int64_t> largest(std::vector<double> values, std::int64_t count) {
  std::replace_if(
      values.begin(), values.end(), [](double v) { return std::isnan(v); }, -INFINITY);
  std::vector<std::int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return values[size(a)] > values[size(b)]; });
  order.resize(size(count));
  return order;
}

void softmax(std::vector<double>& values) {
  const double top = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (double& v : values) sum += v = std::exp(v - top);
  for (double& v : values) v /= sum;
}

/// Leaves out the experts of all but the best groups.
void keep_best_groups(const graph::MoeRoute& op, std::vector<double>& choice) {
  const std::int64_t each = static_cast<std::int64_t>(choice.size()) / op.groups;
  std::vector<double> worth;
  for (std::int64_t g = 0; g < op.groups; ++g) {
    const std::vector<double> group(choice.begin() + g * each, choice.begin() + (g + 1) * each);
    double sum = 0;
    for (const std::int64_t e : largest(group, op.group_top)) sum += group[size(e)];
    worth.push_back(sum);
  }
  const std::vector<std::int64_t> best = largest(worth, op.groups_used);
  for (std::int64_t g = 0; g < op.groups; ++g)
    if (std::find(best.begin(), best.end(), g) == best.end())
      std::fill_n(choice.begin() + g * each, each, -INFINITY);
}

/// The weight of the best of `left`, of which those chosen before are -infinity.
double sparse_mixer_weight(const std::vector<double>& left, double best) {
  constexpr double kWithin = 0.02;  // twice the routers' jitter
  double sum = 0;
  for (const double s : left)
    if (!std::isinf(s) && !((best - s) / std::max(std::abs(s), best) > kWithin)) sum += std::exp(s - best);
  return 1 / sum;
}

}  // namespace

Kernel make_kernel(const graph::MoeRoute& op, const Target& target) {
  return {[op, target, bias = op.bias ? decode(*op.bias) : std::vector<float>(),
           expert_scale = op.expert_scale ? decode(*op.expert_scale)
                                          : std::vector<float>(size(kMaxExperts), 1)](const Context& c) {
    for (std::int64_t row = 0; row < c.rows(op.logits); ++row) {
      const float* logits = c.row(op.logits, row);
      std::vector<double> scores(logits, logits + c.width(op.logits));
      if (op.gating == graph::Gating::softmax) softmax(scores);
      if (op.gating == graph::Gating::sigmoid)
        for (double& s : scores) s = 1.0 / (1.0 + std::exp(-s));
      std::vector<double> choice = scores;
      for (std::size_t e = 0; e < bias.size(); ++e) choice[e] += bias[e];
      if (op.groups > 1) keep_best_groups(op, choice);

      const std::vector<std::int64_t> chosen = largest(choice, op.used);
      std::vector<double> weights;
      for (const std::int64_t e : chosen) weights.push_back(scores[size(e)]);
      if (op.gating == graph::Gating::softmax_of_chosen) softmax(weights);
      if (op.gating == graph::Gating::sparse_mixer)
        for (std::size_t j = 0; j < chosen.size(); ++j) {
          weights[j] = sparse_mixer_weight(choice, weights[j]);
          choice[size(chosen[j])] = -INFINITY;
        }
      // No more than a guard against 0 / 0: sigmoids of very negative logits.
      const double sum = op.renormalise ? std::accumulate(weights.begin(), weights.end(), 1e-20) : 1.0;
      float* out = c.row(target.out, row);
      for (std::size_t j = 0; j < chosen.size(); ++j) {
        out[j] = static_cast<float>(chosen[j]);
        out[chosen.size() + j] =
            static_cast<float>(weights[j] / sum * op.scale * expert_scale[size(chosen[j])]);
      }
    }
  }};
}

Kernel make_kernel(const graph::MoeLinear& op, const Target& target) {
  const std::int64_t n = op.weight.shape[1];
  return {[op, target, n, bias = decode(op.bias, n * op.weight.shape[2])](const Context& c) {
            auto* weights = reinterpret_cast<float*>(c.work);
            const std::int64_t used = c.width(op.route) / 2, k = op.weight.width();
            const bool parts = c.width(op.x) != k;
            for (std::int64_t expert = 0; expert < op.weight.shape[2]; ++expert)
              for (std::int64_t i = 0; i < n; ++i) {
                info(op.weight.dtype)
                    .decode(op.weight.data + size(expert * n + i) * op.weight.row_bytes(), weights, size(k));
                for (std::int64_t row = 0; row < c.rows(op.x); ++row)
                  for (std::int64_t j = 0; j < used; ++j) {
                    if (c.row(op.route, row)[j] != static_cast<float>(expert)) continue;
                    c.row(target.out, row)[j * n + i] =
                        static_cast<float>(dot(c.row(op.x, row) + (parts ? j * k : 0), weights, size(k)) +
                                           bias[size(expert * n + i)]);
                  }
              }
          },
          size(op.weight.width()) * sizeof(float)};
}

Kernel make_kernel(const graph::MoeCombine& op, const Target& target) {
  return {[op, target](const Context& c) {
    const std::int64_t used = c.width(op.route) / 2, n = c.width(target.out);
    for (std::int64_t row = 0; row < c.rows(op.x); ++row) {
      const float* weights = c.row(op.route, row) + used;
      for (std::int64_t i = 0; i < n; ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j < used; ++j) sum += double{weights[j]} * c.row(op.x, row)[j * n + i];
        c.row(target.out, row)[i] = static_cast<float>(sum);
      }
    }
  }};
}

Kernel make_kernel(const graph::HeadLinear& op, const Target& target) {
  return {[op, target](const Context& c) {
            auto* weights = reinterpret_cast<float*>(c.work);
            const std::int64_t k = op.weight.width(), n = op.weight.shape[1];
            for (std::int64_t head = 0; head < op.weight.shape[2]; ++head)
              for (std::int64_t i = 0; i < n; ++i) {
                info(op.weight.dtype)
                    .decode(op.weight.data + size(head * n + i) * op.weight.row_bytes(), weights, size(k));
                for (std::int64_t row = 0; row < c.rows(op.x); ++row)
                  c.row(target.out, row)[head * n + i] =
                      static_cast<float>(dot(c.row(op.x, row) + head * k, weights, size(k)));
              }
          },
          size(op.weight.width()) * sizeof(float)};
}

}  // namespace quipu::backends::reference
