#include "tutti/train/optimizers/optimizer.h"

#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>

#include "tutti/base/status.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/nn/initializers.h"
#include "tutti/nn/norm.h"
#include "tutti/nn/variables.h"

namespace tutti {
namespace {

constexpr const char* kGlobalStep = "global_step";

// An existing variable of that full name, checked, or a new one.
Output FindOrMake(Graph& graph, const std::string& name, const Initializer& initializer,
                  Output slot_of = {}) {
  if (const Node* node = graph.Find(name)) {
    if (node->op() != "Variable" || node->type(0).dtype != initializer.dtype ||
        node->type(0).shape != initializer.shape) {
      ThrowInvalidArgument(fmt::format(
          "the optimizer needs the name \"{}\" for a Variable of {} {}, but it is {} of {} {}; "
          "rename that one",
          name, NameOf(initializer.dtype), initializer.shape.ToString(), node->Describe(),
          NameOf(node->type(0).dtype), node->type(0).shape.ToString()));
    }
    return node->output();
  }
  NameScope root(graph, "/");
  return Variable(graph, initializer, name, {.trainable = false, .slot_of = slot_of});
}

// The updates of moving averages whose layers the gradients come from. Inputs have smaller ids than
// the nodes that take them, so one walk down finds everything under the gradients.
std::vector<const Node*> StateUpdatesUnder(std::span<const GradientAndVariable> list,
                                           const Graph& graph) {
  std::vector<const Node*> users;
  const std::vector<const Node*> candidates = nn::StateUpdates(graph, &users);
  std::vector<const Node*> updates;
  if (candidates.empty()) return updates;
  std::vector<bool> under(size_t(graph.size()), false);
  for (const GradientAndVariable& entry : list) {
    for (const Output& part : {entry.gradient.dense, entry.gradient.rows}) {
      if (part) under[size_t(part.node->id())] = true;
    }
  }
  for (int64_t id = graph.size() - 1; id >= 0; --id) {
    if (!under[size_t(id)]) continue;
    for (const Output& input : graph.nodes()[size_t(id)]->inputs()) {
      under[size_t(input.node->id())] = true;
    }
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (users[i] != nullptr && under[size_t(users[i]->id())]) updates.push_back(candidates[i]);
  }
  return updates;
}

// The updates, each an AssignSub, of the changes that `join` makes of theirs.
std::vector<const Node*> Joined(
    std::span<const Node* const> updates,
    const std::function<std::vector<StateChange>(std::span<const StateChange>)>& join) {
  std::vector<StateChange> changes;
  std::unordered_map<Output, const Node*, OutputHash> update_of;  // by change
  for (const Node* update : updates) {
    changes.push_back({update->input(0), update->input(1)});
    update_of[update->input(1)] = update;
  }
  std::vector<const Node*> made;
  for (const auto& [variable, change] : join(changes)) {
    const auto unchanged = update_of.find(change);
    const DeviceScope device(variable.graph(), *variable.node);
    made.push_back(unchanged != update_of.end() ? unchanged->second
                                                : AssignSub(variable, change).node);
  }
  return made;
}

// Two updates of one variable in a step would run in any order.
void RequireDistinct(const char* where, std::span<const Output> variables) {
  std::unordered_set<Output, OutputHash> seen;
  for (const Output& variable : variables) {
    if (!variable || seen.insert(variable).second) continue;
    ThrowInvalidArgument(fmt::format("{}: {} is given twice; name every variable once", where,
                                     variable.node->Describe()));
  }
}

}  // namespace

Output GlobalStep(Graph& graph) { return FindOrMake(graph, kGlobalStep, Zeros({}, kInt64)); }

Output UpdateContext::Slot(std::string_view name, double initial) const {
  Graph& graph = variable.graph();
  DeviceScope device(graph, *variable.node);
  return FindOrMake(graph, fmt::format("{}/{}", variable.node->name(), name),
                    Full(variable.shape(), initial, variable.dtype()), variable);
}

std::vector<GradientAndVariable> Optimizer::Gradients(Output loss,
                                                      std::span<const Output> variables) const {
  if (!loss) ThrowInvalidArgument("Optimizer::Gradients: the loss is empty");
  if (loss.shape().has_rank() && loss.shape().rank() != 0) {
    ThrowInvalidArgument(
        fmt::format("Optimizer::Gradients: the loss {} is {}; expected a scalar, such as its Mean",
                    loss.node->Describe(), loss.shape().ToString()));
  }
  const std::vector<Output> trained = variables.empty()
                                          ? nn::TrainableVariables(loss.graph())
                                          : std::vector(variables.begin(), variables.end());
  RequireDistinct("Optimizer::Gradients", trained);
  const auto gradients = SparseGradients(std::span(&loss, 1), trained);
  std::vector<GradientAndVariable> list;
  bool any = false;
  for (size_t i = 0; i < trained.size(); ++i) {
    list.push_back({gradients[i], trained[i]});
    any = any || !gradients[i].empty();
  }
  if (!any) {
    ThrowInvalidArgument(
        fmt::format("Optimizer::Gradients: the loss {} depends on none of the {} variables",
                    loss.node->Describe(), trained.size()));
  }
  return list;
}

const Node* Optimizer::Apply(std::span<const GradientAndVariable> list,
                             const ApplyOptions& options) const {
  if (list.empty()) ThrowInvalidArgument("Optimizer::Apply: the list is empty");
  for (const GradientAndVariable& entry : list) {
    if (!entry.variable || entry.variable.node->op() != "Variable") {
      ThrowInvalidArgument(
          fmt::format("Optimizer::Apply: {} is not a Variable",
                      entry.variable ? entry.variable.node->Describe() : "an empty entry"));
    }
  }
  std::vector<Output> variables;
  for (const GradientAndVariable& entry : list) variables.push_back(entry.variable);
  RequireDistinct("Optimizer::Apply", variables);
  Graph& graph = list.front().variable.graph();
  const Output global_step = GlobalStep(graph);
  NameScope scope(graph, "train");
  const Output learning_rate = learning_rate_.Build(global_step);
  const Output step = Add(global_step, int64_t{1});
  std::vector<const Node*> updates;
  for (const GradientAndVariable& entry : list) {
    if (entry.gradient.empty()) continue;
    DeviceScope device(graph, *entry.variable.node);
    updates.push_back(
        Update({entry.variable, entry.gradient, entry.scale, learning_rate, step}).node);
  }
  std::vector<const Node*> averages =
      StateUpdatesUnder(options.computed.empty() ? list : options.computed, graph);
  if (options.join_state && !averages.empty()) averages = Joined(averages, options.join_state);
  updates.insert(updates.end(), averages.begin(), averages.end());
  if (options.count_step) {
    const ControlScope after(graph,
                             options.counted != nullptr ? updates : std::vector<const Node*>());
    const Output counted = AssignAdd(global_step, int64_t{1});
    if (options.counted != nullptr) *options.counted = counted;
    updates.push_back(counted.node);
  }
  return Group(graph, updates);
}

const Node* Optimizer::Minimize(Output loss, std::span<const Output> variables) const {
  return Apply(Gradients(loss, variables));
}

}  // namespace tutti
