#pragma once

#include <span>
#include <vector>

#include "tutti/graph/graph.h"

namespace tutti {

// Copies what the results of `subgraph` need into `graph`, with `args` (values of `graph` or of
// those around it) in place of its args, and returns the copied results. For computing a branch or
// body a second time: so nothing in it may have effects. Print is left out; whatever else would
// have its effect twice (Assign, Dequeue) is an Error of code kUnimplemented that names it. Control
// edges are not copied.
std::vector<Output> InlineSubgraph(const Subgraph& subgraph, std::span<const Output> args,
                                   Graph& graph);

}  // namespace tutti
