#include "graph/distance_bias.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace quipu::graph {

std::int64_t distance_bucket(std::int64_t distance, std::int64_t buckets, std::int64_t max_distance,
                             bool causal) {
  std::int64_t first = 0;
  if (!causal) {
    buckets /= 2;
    if (distance > 0) first = buckets;
  }
  const std::int64_t apart = causal ? -std::min<std::int64_t>(distance, 0) : std::abs(distance);
  const std::int64_t exact = buckets / 2;
  if (apart < exact) return first + apart;
  // In float, as where the models come from: the borders of the buckets depend on it.
  const float share =
      std::log(static_cast<float>(apart) / static_cast<float>(exact)) /
      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
  const auto further = static_cast<std::int64_t>(share * static_cast<float>(buckets - exact));
  return first + std::min(exact + further, buckets - 1);
}

std::vector<float> distance_biases(const Attention& op) {
  std::vector<float> table;
  if (!op.distance_bias) return table;
  const TensorView& weight = *op.distance_bias;
  std::vector<float> of_buckets(static_cast<std::size_t>(weight.elements()));
  for (std::int64_t row = 0; row < weight.rows(); ++row)
    info(weight.dtype)
        .decode(weight.data + static_cast<std::size_t>(row) * weight.row_bytes(),
                of_buckets.data() + row * weight.width(), static_cast<std::size_t>(weight.width()));
  for (std::int64_t head = 0; head < op.heads; ++head)
    for (std::int64_t d = -op.max_distance; d <= op.max_distance; ++d) {
      const std::int64_t bucket = distance_bucket(d, weight.rows(), op.max_distance, op.causal);
      table.push_back(of_buckets[static_cast<std::size_t>(bucket * op.heads + head)]);
    }
  return table;
}

}  // namespace quipu::graph
