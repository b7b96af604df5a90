#include "tutti/graph/check_graph.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "tutti/graph/op_def.h"

namespace tutti {
namespace {

// The notes that building a graph leaves: which variable an Arg stands for, which layer an update
// of moving averages belongs to, and which node another one is colocated with.
bool IsUserNote(const Node& node, const std::string& name) {
  if (name == "_variable" || name == "_container") return node.op() == "Arg";
  return name == "_state_update_of" || name == "_colocate";
}

absl::Status CheckNode(const Node& node) {
  if (node.def().internal) {
    return InvalidArgument(
        "{}: only the compiler makes {} nodes; a graph that is read cannot have them",
        node.Describe(), node.op());
  }
  for (const auto& [name, value] : node.attrs()) {
    if (!name.starts_with('_')) continue;
    if (!IsUserNote(node, name)) {
      return InvalidArgument(
          "{}: attribute \"{}\" is a note of the compiler; a graph that is read cannot have it",
          node.Describe(), name);
    }
    if (TypeOf(value) != AttrType::kString) {
      return InvalidArgument("{}: attribute \"{}\" is a {}; expected {}", node.Describe(), name,
                             NameOf(TypeOf(value)), NameOf(AttrType::kString));
    }
  }
  return absl::OkStatus();
}

// The variable that a value is, inside and outside of subgraphs.
struct Referred {
  std::string name;
  std::string container;
  friend bool operator==(const Referred&, const Referred&) = default;
};

std::string StringOf(const Node& node, std::string_view attr) {
  const AttrValue* value = node.FindAttr(attr);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return text == nullptr ? "" : *text;
}

Referred ReferredBy(const Node& node) {
  if (node.op() == "Variable") return {node.name(), StringOf(node, "container")};
  return {StringOf(node, "_variable"), StringOf(node, "_container")};
}

// Every Arg is one of the subgraph's args, once, and what says that it is a variable is given that
// variable. REQUIRES: `node` was checked by its shape function: there are inputs for all args.
absl::Status CheckArgs(const Node& node, const Subgraph& subgraph) {
  std::unordered_set<const Node*> args;
  const size_t first = node.inputs().size() - std::min(node.inputs().size(), subgraph.args.size());
  for (size_t i = 0; i < subgraph.args.size(); ++i) {
    const Node& arg = *subgraph.args[i].node;
    if (!args.insert(&arg).second) {
      return InvalidArgument("{}: {} is among the args of its subgraph twice", node.Describe(),
                             arg.Describe());
    }
    if (!arg.HasAttr("_variable")) continue;
    if (first + i < node.inputs().size() &&
        ReferredBy(arg) == ReferredBy(*node.input(int(first + i)).node)) {
      continue;
    }
    return InvalidArgument("{}: {} stands for the variable \"{}\" but is given another value",
                           node.Describe(), arg.Describe(), ReferredBy(arg).name);
  }
  for (const auto& inner : subgraph.graph->nodes()) {
    if (inner->op() == "Arg" && !args.contains(inner.get())) {
      return InvalidArgument("{}: {} is not among the args of its subgraph", node.Describe(),
                             inner->Describe());
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckUserGraph(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->op() != "Arg") continue;
    return InvalidArgument("{}: an Arg stands for an input of If or While; it lies outside of them",
                           node->Describe());
  }
  std::vector<const Graph*> unchecked = {&graph};
  while (!unchecked.empty()) {
    const Graph& next = *unchecked.back();
    unchecked.pop_back();
    for (const auto& node : next.nodes()) {
      TUTTI_RETURN_IF_ERROR(CheckNode(*node));
      for (const auto& [name, value] : node->attrs()) {
        const auto* subgraph = std::get_if<std::shared_ptr<const Subgraph>>(&value);
        if (subgraph == nullptr || *subgraph == nullptr) continue;
        TUTTI_RETURN_IF_ERROR(CheckArgs(*node, **subgraph));
        unchecked.push_back((*subgraph)->graph.get());
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace tutti
