#include "tutti/graph/inline.h"

#include <fmt/format.h>

#include <unordered_map>

#include "tutti/base/error.h"
#include "tutti/graph/find_within.h"
#include "tutti/graph/op_def.h"

namespace tutti {
namespace {

bool HasEffect(const Node& node) {
  const OpDef& def = node.def();
  if (def.has_subgraphs()) return false;  // looked at on their own
  if (def.async) return true;
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (def.stateful && def.IsVariableInput(i)) return true;
  }
  return false;
}

}  // namespace

std::vector<Output> InlineSubgraph(const Subgraph& subgraph, std::span<const Output> args,
                                   Graph& graph) {
  std::unordered_map<Output, Output, OutputHash> copies;
  for (size_t i = 0; i < subgraph.args.size(); ++i) copies[subgraph.args[i]] = args[i];
  const auto& nodes = subgraph.graph->nodes();
  std::vector<bool> needed(nodes.size(), false);
  for (const Output& result : subgraph.results) needed[result.node->id()] = true;
  for (size_t id = nodes.size(); id-- > 0;) {
    if (!needed[id]) continue;
    for (const Output& input : nodes[id]->inputs()) needed[input.node->id()] = true;
  }
  for (size_t id = 0; id < nodes.size(); ++id) {
    const Node& node = *nodes[id];
    if (!needed[id] || node.op() == "Arg") continue;
    if (node.op() == "Print") {
      copies[node.output()] = copies.at(node.input(0));
      continue;
    }
    if (const Node* effect = FindWithin(node, HasEffect)) {
      throw Error(Code::kUnimplemented,
                  fmt::format("{} would have its effect twice, because the gradient of the If or "
                              "While around it computes it again; move it out, or put "
                              "StopGradient around what it gives",
                              effect->Describe()));
    }
    NodeSpec spec = node.spec();
    spec.name.clear();
    spec.control_inputs.clear();
    for (Output& input : spec.inputs) input = copies.at(input);
    const Node* copy = graph.Add(std::move(spec));
    for (int i = 0; i < node.num_outputs(); ++i) copies[node.output(i)] = copy->output(i);
  }
  std::vector<Output> results;
  for (const Output& result : subgraph.results) results.push_back(copies.at(result));
  return results;
}

}  // namespace tutti
