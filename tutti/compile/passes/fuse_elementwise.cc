// Chains and bunches of element-wise float32 nodes become one _FusedElementwise node, which reads
// each input once and keeps what lies between in the cache.
//
// A group is a set of nodes of one shape. It must not have a path that leaves it and comes back, or
// the graph would have a cycle. Levels see to that without a search: each node has a level, an edge
// between different groups always leads to a higher level, and all nodes of a group have the same
// one; so whatever leaves a group never comes back to its level. Two sweeps, each linear:
//
//   forward: a node looks at those of its inputs that have the highest level. If all of them can be
//     in one group with it, it joins them (groups of the same level cannot depend on each other, so
//     they may be joined to one); else it begins a group one level above.
//   backward: a group whose consumers all lie in one group, or above that group's level, is pulled
//     up into it.
//
// Then groups and single nodes are copied in an order as near to the old one as the groups allow.
//
// A part of a step does not show that a Recv may wait, by way of another device, for a Send of its
// own. The order in which it comes here is that of the whole step, so a Recv can only wait for
// Sends before it. To be safe, transfers keep their order, as if each waited for the one before.
// Else a fused node might hold back a Send for which one of its own inputs waits; so might the
// memory that it shares with them.
#include <algorithm>
#include <array>
#include <queue>
#include <unordered_map>

#include "tutti/compile/passes/node_facts.h"
#include "tutti/compile/passes/passes.h"
#include "tutti/graph/build.h"
#include "tutti/graph/ops/elementwise_program.h"

namespace tutti {
namespace {

// Longer programs gain nothing: the loops between are already in the cache.
constexpr int kMostLines = 64;
constexpr int kMostInputs = 32;

// The name of the node's op in the language of programs.
std::string_view LanguageName(const Node& node) {
  if ((node.op() == "Gelu" || node.op() == "GeluGrad") && node.attr<bool>("approximate")) {
    return node.op() == "Gelu" ? "GeluTanh" : "GeluTanhGrad";
  }
  return node.op();
}

// AddN becomes a line for each value but the first.
int LinesOf(const Node& node) { return node.op() == "AddN" ? node.num_inputs() - 1 : 1; }

class Fuser {
 public:
  explicit Fuser(const Program& program) : program_(program), copy_(program) {}

  absl::StatusOr<Program> Run() {
    Survey();
    GroupForward();
    GroupBackward();
    Collect();
    TUTTI_RETURN_IF_ERROR(Emit());
    return copy_.Finish();
  }

 private:
  const std::vector<std::unique_ptr<Node>>& nodes() const { return program_.graph->nodes(); }

  // Which nodes can be fused at all: those with a form in the language, float32 throughout, of a
  // known shape, and without control edges, whose meaning a group would blur.
  void Survey() {
    const size_t count = nodes().size();
    fusible_.assign(count, false);
    fetched_.assign(count, false);
    consumers_.assign(count, {});
    ordered_.assign(count, false);
    for (const auto& node : nodes()) {
      for (const Node* control : node->control_inputs()) ordered_[control->id()] = true;
      for (const Output& input : node->inputs()) consumers_[input.node->id()].push_back(node->id());
    }
    for (const Node* target : program_.targets) ordered_[target->id()] = true;
    for (const Output& fetch : program_.fetches) fetched_[fetch.node->id()] = true;
    for (const Output& feed : program_.feeds) ordered_[feed.node->id()] = true;
    for (const auto& node : nodes()) {
      fusible_[node->id()] = !ordered_[node->id()] && IsFusible(*node);
    }
  }

  static bool IsFusible(const Node& node) {
    if (!node.control_inputs().empty() || node.num_outputs() != 1) return false;
    if (node.type(0).dtype != kFloat32 || !node.type(0).shape.IsFullyKnown()) return false;
    for (const Output& input : node.inputs()) {
      if (input.dtype() != kFloat32 || !input.shape().IsFullyKnown()) return false;
    }
    if (node.op() == "AddN") return node.num_inputs() >= 2 && node.num_inputs() <= kMostInputs;
    return FindElementwiseOp(LanguageName(node)) != nullptr;
  }

  // The group of a node: a representative, found over parents (union-find, halving the paths).
  int64_t Group(int64_t id) {
    while (parent_[id] != id) {
      parent_[id] = parent_[parent_[id]];
      id = parent_[id];
    }
    return id;
  }

  bool Compatible(int64_t group, const Node& node) const {
    const Node& other = *nodes()[group];
    return fusible_[group] && other.type(0).shape == node.type(0).shape &&
           other.device() == node.device();
  }

  // The inputs of a group are counted generously: one for every edge from outside. `inner` edges
  // lie between the two.
  bool Fits(int64_t a, int64_t b, int inner) const {
    return lines_[a] + lines_[b] <= kMostLines && inputs_[a] + inputs_[b] - inner <= kMostInputs;
  }

  void Join(int64_t from, int64_t into, int inner) {
    parent_[from] = into;
    lines_[into] += lines_[from];
    inputs_[into] += inputs_[from] - inner;
  }

  void GroupForward() {
    const size_t count = nodes().size();
    parent_.resize(count);
    level_.assign(count, 0);
    lines_.assign(count, 0);
    inputs_.assign(count, 0);
    int last_transfer = -1;  // its level
    for (const auto& node : nodes()) {
      const int64_t id = node->id();
      parent_[id] = id;
      lines_[id] = LinesOf(*node);
      inputs_[id] = node->num_inputs();
      int highest = -1;
      for (const Output& input : node->inputs()) {
        highest = std::max(highest, level_[Group(input.node->id())]);
      }
      for (const Node* control : node->control_inputs()) {
        highest = std::max(highest, level_[Group(control->id())]);
      }
      if (node->def().transfer) highest = std::max(highest, last_transfer);
      level_[id] = highest + 1;
      if (node->def().transfer) last_transfer = level_[id];
      if (fusible_[id] && highest >= 0) JoinHighest(*node, highest);
    }
  }

  void JoinHighest(const Node& node, int highest) {
    int64_t joined = -1;
    int lines = lines_[node.id()];
    int inputs = inputs_[node.id()];
    int inner = 0;
    std::vector<int64_t> groups;
    for (const Output& input : node.inputs()) {
      const int64_t group = Group(input.node->id());
      if (level_[group] != highest) continue;
      ++inner;
      if (std::find(groups.begin(), groups.end(), group) != groups.end()) continue;
      if (!Compatible(group, node)) return;
      groups.push_back(group);
      lines += lines_[group];
      inputs += inputs_[group];
    }
    if (lines > kMostLines || inputs - inner > kMostInputs) return;
    for (const int64_t group : groups) {
      if (joined < 0) {
        joined = group;
      } else {
        Join(group, joined, 0);
      }
    }
    Join(node.id(), joined, inner);
  }

  void GroupBackward() {
    // The highest first, so that a group comes after all of its consumers.
    std::vector<std::vector<int64_t>> members(nodes().size());
    std::vector<int64_t> groups;
    for (const auto& node : nodes()) members[Group(node->id())].push_back(node->id());
    for (const auto& node : nodes()) {
      if (fusible_[node->id()] && Group(node->id()) == node->id()) groups.push_back(node->id());
    }
    std::stable_sort(groups.begin(), groups.end(),
                     [&](int64_t a, int64_t b) { return level_[a] > level_[b]; });
    for (const int64_t group : groups) {
      // The lowest group above that takes a result of this one.
      int64_t target = -1;
      bool unique = true;
      int inner = 0;
      for (const int64_t member : members[group]) {
        for (const int64_t consumer : consumers_[member]) {
          const int64_t other = Group(consumer);
          if (other == group) continue;
          if (other == target) {
            ++inner;
          } else if (target < 0 || level_[other] < level_[target]) {
            target = other;
            unique = true;
            inner = 1;
          } else if (level_[other] == level_[target]) {
            unique = false;
          }
        }
      }
      if (target < 0 || !unique || !Compatible(target, *nodes()[group]) ||
          !Fits(group, target, inner)) {
        continue;
      }
      Join(group, target, inner);
    }
  }

  // The members of each group of two and more, and the Constants that become numbers in programs.
  void Collect() {
    members_.assign(nodes().size(), {});
    numbers_left_.assign(nodes().size(), -1);
    for (const auto& node : nodes()) members_[Group(node->id())].push_back(node.get());
    for (const auto& node : nodes()) {
      if (!IsNumber(*node)) continue;
      int left = fetched_[node->id()] || ordered_[node->id()] ? 1 : 0;
      for (const int64_t consumer : consumers_[node->id()]) {
        if (!TakesNumbers(*nodes()[consumer])) ++left;
      }
      numbers_left_[node->id()] = left;
    }
  }

  static bool IsNumber(const Node& node) {
    return node.op() == "Constant" && node.control_inputs().empty() &&
           node.type(0).dtype == kFloat32 && node.type(0).shape == Shape{};
  }

  // A node of a group whose scalar operands are written as numbers. (Of a group of scalars they are
  // not, since a program has at least one input, which gives its shape.)
  bool TakesNumbers(const Node& node) {
    if (!fusible_[node.id()] || members_[Group(node.id())].size() < 2) return false;
    const ElementwiseOp* op = FindElementwiseOp(LanguageName(node));
    return op != nullptr && op->broadcasts && node.type(0).shape != Shape{};
  }

  // Units (groups or single nodes) in topological order, the one that ended first among those that
  // are ready.
  absl::Status Emit() {
    const size_t count = nodes().size();
    std::vector<int> waiting(count, 0);
    const auto for_each_edge = [&](const Node& node, const auto& visit) {
      for (const Output& input : node.inputs()) visit(Group(input.node->id()));
      for (const Node* control : node.control_inputs()) visit(Group(control->id()));
    };
    std::vector<std::vector<int64_t>> successors(count);
    int64_t last_transfer = -1;
    for (const auto& node : nodes()) {
      const int64_t unit = Group(node->id());
      const auto add = [&](int64_t from) {
        if (from == unit) return;
        successors[from].push_back(unit);
        ++waiting[unit];
      };
      for_each_edge(*node, add);
      if (!node->def().transfer) continue;
      if (last_transfer >= 0) add(last_transfer);
      last_transfer = unit;
    }
    using Ready = std::pair<int64_t, int64_t>;  // last member, unit
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    const auto make_ready = [&](int64_t unit) { ready.emplace(members_[unit].back()->id(), unit); };
    for (size_t id = 0; id < count; ++id) {
      if (Group(int64_t(id)) == int64_t(id) && waiting[id] == 0) make_ready(int64_t(id));
    }
    while (!ready.empty()) {
      const int64_t unit = ready.top().second;
      ready.pop();
      TUTTI_RETURN_IF_ERROR(EmitUnit(members_[unit]));
      for (const int64_t next : successors[unit]) {
        if (--waiting[next] == 0) make_ready(next);
      }
    }
    return absl::OkStatus();
  }

  absl::Status EmitUnit(const std::vector<const Node*>& members) {
    if (members.size() >= 2) return EmitGroup(members);
    const Node& node = *members.front();
    // A Constant that only programs used is not needed any more.
    const bool unused = numbers_left_[node.id()] == 0 && !consumers_[node.id()].empty();
    return unused ? absl::OkStatus() : copy_.Copy(node).status();
  }

  absl::Status EmitGroup(const std::vector<const Node*>& members) {
    const Node& last = *members.back();
    const int64_t group = Group(last.id());
    NodeSpec spec{.op = "_FusedElementwise",
                  .name = last.name(),
                  .device = last.device(),
                  .where = last.where()};
    std::vector<std::string> program;
    std::vector<int64_t> outputs;
    std::vector<const Node*> output_nodes;
    std::unordered_map<Output, ElementwiseOperand, OutputHash> values;
    std::vector<Output> inputs;
    const auto operand_of = [&](const Node& node, Output input) {
      if (IsNumber(*input.node) && TakesNumbers(node)) {
        ElementwiseOperand number;
        number.number = input.node->attr<Tensor>("value").scalar<float>();
        return number;
      }
      const auto [it, added] = values.try_emplace(input);
      if (added) {
        it->second = {ElementwiseOperand::Kind::kInput, int(inputs.size()), 0};
        inputs.push_back(input);
      }
      return it->second;
    };
    for (const Node* node : members) {
      ElementwiseLine line;
      line.op = FindElementwiseOp(node->op() == "AddN" ? "Add" : LanguageName(*node));
      line.constants = ConstantsOf(*node);
      line.operands[0] = operand_of(*node, node->input(0));
      for (int i = 1; i < std::max(node->num_inputs(), 2); ++i) {
        if (i < node->num_inputs()) line.operands[1] = operand_of(*node, node->input(i));
        program.push_back(line.ToString());
        line.operands[0] = {ElementwiseOperand::Kind::kLine, int(program.size()) - 1, 0};
      }
      values[node->output()] = line.operands[0];
      if (fetched_[node->id()] || UsedOutside(*node, group)) {
        outputs.push_back(int64_t(program.size()) - 1);
        output_nodes.push_back(node);
      }
    }
    spec.inputs = copy_.Mapped(inputs);
    SetAttr(spec.attrs, "program", std::move(program));
    SetAttr(spec.attrs, "outputs", std::move(outputs));
    TUTTI_ASSIGN_OR_RETURN(const Node* fused, AddNode(copy_.to(), std::move(spec)));
    for (size_t i = 0; i < output_nodes.size(); ++i) {
      copy_.Map(output_nodes[i]->output(), fused->output(int(i)));
    }
    return absl::OkStatus();
  }

  bool UsedOutside(const Node& node, int64_t group) {
    const auto& consumers = consumers_[node.id()];
    return std::any_of(consumers.begin(), consumers.end(),
                       [&](int64_t consumer) { return Group(consumer) != group; });
  }

  static std::array<float, 2> ConstantsOf(const Node& node) {
    if (node.op() == "Clip") {
      return {float(node.attr<double>("low")), float(node.attr<double>("high"))};
    }
    if (node.HasAttr("alpha")) return {float(node.attr<double>("alpha")), 0};
    return {};
  }

  const Program& program_;
  ProgramCopy copy_;
  // By node id.
  std::vector<bool> fusible_;
  std::vector<bool> fetched_;
  std::vector<bool> ordered_;  // has a control edge from it, is a target, or is fed
  std::vector<std::vector<int64_t>> consumers_;
  std::vector<int64_t> parent_;
  // By group.
  std::vector<int> level_;
  std::vector<int> lines_;
  std::vector<int> inputs_;
  std::vector<std::vector<const Node*>> members_;
  std::vector<int> numbers_left_;  // uses of a Constant that stay; -1 for other nodes
};

}  // namespace

absl::StatusOr<Program> FuseElementwise(Program program, const PassContext& context) {
  if (!HasKernel(context, "_FusedElementwise", kFloat32)) return program;
  return Fuser(program).Run();
}

}  // namespace tutti
