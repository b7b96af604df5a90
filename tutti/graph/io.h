#pragma once

#include <string>
#include <string_view>

#include "tutti/graph/graph.h"

// Graphs as text and as protobuf bytes. Both forms read back to an equal graph. Reading checks
// everything: whatever the input is, the outcome is a graph that a program could build, or an
// Error.
namespace tutti {

// The text form, one node a line: "y = MatMul(x, w) {transpose_a=true}". With `types`, what is
// known of each output stands beside it as a comment.
std::string GraphToText(const Graph& graph, bool types = false);

// Adds the nodes of a text form to `graph`, which must be empty. Throws Error with line and column
// of the first mistake; the graph then holds a part of the nodes.
void ReadTextGraph(std::string_view text, Graph& graph);

// The protobuf form (proto/graph.proto). Throws Error when it would pass protobuf's 2 GB.
std::string GraphToBytes(const Graph& graph);

// Adds the nodes of a protobuf form to `graph`, which must be empty. Throws Error that names the
// node that is wrong; the graph then holds a part of the nodes.
void ReadGraphBytes(std::string_view bytes, Graph& graph);

}  // namespace tutti
