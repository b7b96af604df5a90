#pragma once

#include "tutti/base/status.h"
#include "tutti/graph/graph.h"

namespace tutti {

// Is `graph`, with the subgraphs inside it, one that a program can build? Text and bytes can spell
// more, for programs on their way through the compiler: ops that only passes make, their notes on
// nodes ("_name"), and Args that stand for nothing. Kernels trust what a pass has written, so a
// graph from outside that has any of it is INVALID_ARGUMENT, naming the node.
absl::Status CheckUserGraph(const Graph& graph);

}  // namespace tutti
