// Creates variables with the names and shapes of the graph's in a second graph, under the placer of
// the parameter servers. The plan is therefore the one that a training would print.
#include "tools/tutti/explain/variables.h"

#include <fmt/format.h>

#include <map>
#include <vector>

#include "tools/tutti/explain/read_graph.h"
#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/graph/ops/state.h"
#include "tutti/nn/initializers.h"
#include "tutti/topology/quantity.h"
#include "tutti/train/strategies/ps/placer.h"

namespace tutti::tools {
namespace {

absl::StatusOr<int64_t> BytesOf(const char* flag, const std::string& text) {
  auto bytes = topology::ParseBytes(text);
  if (!bytes.ok()) return WithPrefix(bytes.status(), fmt::format("--{}: ", flag));
  if (*bytes < 1) return InvalidArgument("--{} is \"{}\"; expected 1 byte or more", flag, text);
  return bytes;
}

// The trainable variable that an optimizer slot belongs to: "w" for "w/momentum", of the same
// shape. Only the name shows it in a graph.
const Node* OwnerOf(const Node& slot, const std::map<std::string, const Node*>& trainable) {
  std::string name = slot.name();
  for (size_t slash = name.rfind('/'); slash != name.npos; slash = name.rfind('/')) {
    name.resize(slash);
    const auto owner = trainable.find(name);
    if (owner == trainable.end()) continue;
    return owner->second->type(0).shape == slot.type(0).shape ? owner->second : nullptr;
  }
  return nullptr;
}

void MakeSlot(Graph& graph, const Node& slot, const Output& owner) {
  const VariableOptions options = {.trainable = false};
  const std::string rest = slot.name().substr(owner.node->name().size());
  const Node& joined = *owner.node;
  const int parts = joined.op() == "Variable" ? 0 : joined.num_inputs();
  const auto make = [&](const Output& variable) {
    VariableOptions of = options;
    of.slot_of = variable;
    Variable(graph, Zeros(variable.shape(), slot.type(0).dtype), variable.node->name() + rest, of);
  };
  if (parts == 0) make(owner);
  for (int p = 0; p < parts; ++p) make(joined.input(p));
}

absl::Status MakeVariables(const Graph& from, Graph& to) {
  std::map<std::string, const Node*> trainable;
  std::map<const Node*, Output> made;
  for (const auto& node : from.nodes()) {
    if (node->op() == "Concat" && IsVariable(*node)) {
      return InvalidArgument(
          "variable \"{}\" is in {} parts already; expected the graph of a training in one process",
          node->name(), node->num_inputs());
    }
    if (node->op() != "Variable") continue;
    const bool trains = std::get<bool>(*node->FindAttr("trainable"));
    if (trains) trainable.emplace(node->name(), node.get());
    if (const Node* owner = trains ? nullptr : OwnerOf(*node, trainable)) {
      MakeSlot(to, *node, made.at(owner));
      continue;
    }
    made[node.get()] = Variable(to, Zeros(node->type(0).shape, node->type(0).dtype), node->name(),
                                {.trainable = trains});
  }
  if (made.empty()) return InvalidArgument("the graph has no variables");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ExplainVariables(const VariablesOptions& options) {
  TUTTI_ASSIGN_OR_RETURN(const int64_t split_bytes, BytesOf("split-bytes", options.split_bytes));
  int64_t memory = 0;
  if (!options.memory.empty()) {
    TUTTI_ASSIGN_OR_RETURN(memory, BytesOf("ps-memory", options.memory));
  }
  TUTTI_ASSIGN_OR_RETURN(const std::unique_ptr<Graph> graph, ReadGraph(options.graph, 1));
  std::vector<std::string> devices;
  for (int i = 0; i < options.servers; ++i) {
    devices.push_back(fmt::format("/job:ps/task:{}/cpu:0", i));
  }
  ServerPlacer placer(std::move(devices), split_bytes, memory);
  Graph watched;
  try {
    const VariablePlacementScope scope(
        [&](const VariableRequest& request) { return placer.Place(request); });
    TUTTI_RETURN_IF_ERROR(WithPrefix(MakeVariables(*graph, watched), options.graph + ": "));
  } catch (const Error& error) {
    return absl::Status(absl::StatusCode(error.code()), error.what());
  }
  return fmt::format("{}\n\n{}\n", placer.Summary(), placer.Describe());
}

}  // namespace tutti::tools
