#pragma once

#include <string>
#include <string_view>

#include "tutti/base/status.h"
#include "tutti/graph/graph.h"

// The text form of a graph: for tests, for reading, for writing small graphs by hand. One node a
// line, inputs and attributes in the op's own words:
//
//   x = Placeholder() {dtype=float32, shape=[?, 784]}
//   w = Variable() {dtype=float32, shape=[784, 10]}
//   y = MatMul(x, w) {transpose_a=true} ^init @/cpu:0     # runs after init, wants cpu:0
//   s, = Split(y) {axis=1, num=2}                         # several outputs: s, s:1
//   z = Add(s, s:1)
//   c = Constant() {value=float32 [2] {1, -0.5}}
//
// Lines may come in any order. Attributes that were left out when the node was made are not
// written. docs/formats/graph_text.md has the grammar.
namespace tutti {

struct TextOptions {
  bool types = false;  // the inferred types of each node as a comment: "# float32 [?, 10]"
};

// The nodes in their order. ParseText gives an equal graph back (GraphsEqual), to the bit.
std::string ToText(const Graph& graph, const TextOptions& options = {});

// Adds the nodes of `text` to `graph`, which must be empty and have no scope open. Nodes keep the
// order of the text, but for those that come before their inputs. Every mistake is an error with
// line and column, what was found and what was expected; the graph then holds a part of the nodes.
// Takes memory in proportion to the text. Accepts what compiler passes write, too: a text from
// outside goes through ReadTextGraph (graph/io.h).
absl::Status ParseText(std::string_view text, Graph* graph);

}  // namespace tutti
