#pragma once

#include <vector>

#include "tutti/graph/graph.h"

namespace tutti {

// The nodes of a graph in the order in which one lane runs them, as long as nothing is waited for.
// Every edge of the plan goes forward in it: data, control, and readers of a variable before the
// updates that were built after them. A function of the graph alone, so that workers with the same
// graph start their collectives in the same order. See order.cc for what is moved, and why.
std::vector<const Node*> OrderOf(const Graph& graph);

}  // namespace tutti
