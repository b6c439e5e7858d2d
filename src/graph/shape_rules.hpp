// The shape rule of every op: what it may read and what it yields.
#pragma once

#include <string>

#include "graph/graph.hpp"

namespace quipu::graph {

/// Rows and width of the result of `op` as the next node of `graph`, named `node` in messages. Throws
/// `Error`: internal for values that do not fit together (a mistake of the model's code), bad_file or
/// unsupported for a weight of the wrong shape or dtype.
ValueInfo infer_shape(const Graph& graph, const std::string& node, const Op& op);

}  // namespace quipu::graph
