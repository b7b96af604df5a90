#pragma once

#include "tutti/graph/graph.h"

namespace tutti {

// Same nodes in the same order: names, ops, inputs, control inputs, attributes and requested
// devices. Source lines do not count. Subgraphs nest at most 64 deep, which bounds the recursion.
bool GraphsEqual(const Graph& a, const Graph& b);
bool SubgraphsEqual(const Subgraph& a, const Subgraph& b);

}  // namespace tutti
