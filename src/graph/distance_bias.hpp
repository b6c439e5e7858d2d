// Biases of attention scores by how far apart two positions are.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.hpp"

namespace quipu::graph {

/// The bucket of a distance (key's position minus query's). Half of the buckets stand for one small distance
/// each, the others for logarithmically longer runs up to `max_distance`; looking both ways, either direction
/// has half of all buckets. Source: Raffel et al. 2019 (T5), `_relative_position_bucket` of the published
/// code.
std::int64_t distance_bucket(std::int64_t distance, std::int64_t buckets, std::int64_t max_distance,
                             bool causal);

/// `distance_bias` of an attention by head and distance: [heads][2 * max_distance + 1], for distances from
/// -max_distance on; those farther apart have the outermost ones. Empty when it has none.
std::vector<float> distance_biases(const Attention& op);

}  // namespace quipu::graph
