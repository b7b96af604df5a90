#include "tutti/placement/state_homes.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "tutti/graph/op_def.h"
#include "tutti/placement/node_work.h"

namespace tutti::placement {
namespace {

std::string KeyOf(const Node& state) {
  const AttrValue* const container = state.FindAttr("container");
  const auto* const text = container == nullptr ? nullptr : std::get_if<std::string>(container);
  return (text == nullptr ? "" : *text) + "\n" + state.name();
}

ValueType Concrete(const Node& placeholder) {
  ValueType type = placeholder.type(0);
  if (!type.shape.has_rank()) {
    type.shape = Shape{kAssumedDim};
    return type;
  }
  std::vector<int64_t> dims(type.shape.dims().begin(), type.shape.dims().end());
  for (int64_t& dim : dims) {
    if (dim < 0) dim = kAssumedDim;
  }
  type.shape = Shape(dims);
  return type;
}

bool IsOfCheckpoints(const Node& node) {
  return node.op() == "TakeSnapshot" || node.op() == "SaveShard" || node.op() == "RestoreShard";
}

// The Assigns that give variables their first values, and what reads the variables' states.
std::unordered_set<const Node*> Initializers(const Graph& graph) {
  std::unordered_set<const Node*> found;
  for (const auto& node : graph.nodes()) {
    if (node->op() != "Variable") continue;
    const AttrValue* const value = node->FindAttr("initializer");
    const auto* const name = value == nullptr ? nullptr : std::get_if<std::string>(value);
    if (name != nullptr && !name->empty()) found.insert(graph.Find(*name));
  }
  return found;
}

}  // namespace

std::string StateHomes::Find(const Node& state) const {
  std::lock_guard lock(mutex_);
  const auto it = devices_.find(KeyOf(state));
  return it == devices_.end() ? "" : it->second;
}

void StateHomes::Set(const Node& state, const std::string& device) {
  std::lock_guard lock(mutex_);
  devices_.emplace(KeyOf(state), device);
}

std::unordered_map<std::string, std::string> StateHomes::Of(const Graph& graph) const {
  std::unordered_map<std::string, std::string> homes;
  for (const auto& node : graph.nodes()) {
    if (!IsState(*node)) continue;
    if (std::string device = Find(*node); !device.empty()) {
      homes.emplace(node->name(), std::move(device));
    }
  }
  return homes;
}

bool IsState(const Node& node) {
  return node.op() == "Variable" ||
         (node.def().stateful && node.num_inputs() == 0 && node.HasAttr("container"));
}

StepRequest WholeStep(const Graph& graph, const StepRequest& like) {
  const std::unordered_set<const Node*> initializers = Initializers(graph);
  StepRequest request;
  std::vector<int> readers(size_t(graph.size()), 0);
  for (const auto& node : graph.nodes()) {
    for (const Output& input : node->inputs()) ++readers[size_t(input.node->id())];
    for (const Node* before : node->control_inputs()) ++readers[size_t(before->id())];
    if (initializers.contains(node.get()) || IsOfCheckpoints(*node)) continue;
    if (node->def().has_effects() && !IsState(*node)) request.targets.push_back(node.get());
  }
  if (request.targets.empty()) {
    for (const auto& node : graph.nodes()) {
      const bool read = readers[size_t(node->id())] > 0;
      if (read || node->num_outputs() == 0 || node->op() == "IsInitialized" ||
          initializers.contains(node.get())) {
        continue;
      }
      request.fetches.push_back(node->output());
    }
  }
  std::unordered_set<const Node*> fed;
  for (const StepRequest::Fed& feed : like.feeds) {
    // Any output may be fed; here only placeholders, so that all of the graph is there.
    if (feed.output.node->op() != "Placeholder") continue;
    request.feeds.push_back(feed);
    fed.insert(feed.output.node);
  }
  for (const auto& node : graph.nodes()) {
    if (node->op() == "Placeholder" && !fed.contains(node.get())) {
      request.feeds.push_back({node->output(), Concrete(*node)});
    }
  }
  return request;
}

}  // namespace tutti::placement
