// Many small updates become one node (_FusedApplyAdam and its like) that works them off as one
// list.
//
// Updates go together when they are of the same op with the same hyper-parameters, on the same
// device, and either in the same bucket (their gradients come from one AllReduce, so they become
// ready together) or, without buckets, small: there a node costs more than its work, and waiting a
// little for the last of the group costs nothing. A large update is never made to wait for another
// gradient.
//
// Fusing must not make a cycle: if something that runs after one update leads to another, the two
// stay apart. Nodes are walked in topological order and a group collects updates until a node is
// met that runs after one of them; then the group is closed. Whatever leads from one update to
// another passes through such a node, so no group holds both.
#include <algorithm>
#include <unordered_set>

#include "tutti/compile/passes/node_facts.h"
#include "tutti/compile/passes/passes.h"
#include "tutti/graph/build.h"
#include "tutti/graph/ops/update_table.h"
#include "tutti/graph/ops/variable_key.h"

namespace tutti {
namespace {

// What counts as small, and how much goes into one group of small ones: 64 Ki elements are some
// tens of microseconds of work, against about one for a node.
constexpr int64_t kSmallElements = 16384;
constexpr int64_t kGroupElements = 65536;

struct Group {
  const UpdateOp* op = nullptr;
  std::vector<const Node*> members;
  std::vector<VariableKey> variables;
  int64_t elements = 0;
};

// Learning rate, step and scale, as the op has them.
std::vector<Output> Scalars(const Node& node, const UpdateOp& op) {
  std::vector<Output> scalars = {node.input(op.learning_rate_input())};
  if (op.takes_step) scalars.push_back(node.input(op.step_input()));
  for (int i = op.gradient_input() + 1; i < node.num_inputs(); ++i)
    scalars.push_back(node.input(i));
  return scalars;
}

// The bucket that the update's gradient comes from, or null.
const Node* BucketOf(const Node& update, const UpdateOp& op) {
  const Node* source = update.input(op.gradient_input()).node;
  while (source->def().view) source = source->input(0).node;
  return source->def().bucket ? source : nullptr;
}

bool SameKind(const Node& a, const Node& b, const UpdateOp& op) {
  if (a.op() != b.op() || a.device() != b.device() || a.type(0).dtype != b.type(0).dtype ||
      Scalars(a, op) != Scalars(b, op) || BucketOf(a, op) != BucketOf(b, op)) {
    return false;
  }
  return std::all_of(op.attrs.begin(), op.attrs.end(), [&](const AttrDef& attr) {
    return AttrEquals(*a.FindAttr(attr.name), *b.FindAttr(attr.name));
  });
}

class Fuser {
 public:
  Fuser(const Program& program, const PassContext& context)
      : program_(program), context_(context), uses_(program), copy_(program) {}

  absl::StatusOr<Program> Run() {
    for (const auto& node : program_.graph->nodes()) {
      TUTTI_RETURN_IF_ERROR(CloseGroupsBefore(*node));
      TUTTI_ASSIGN_OR_RETURN(const bool joined, Join(*node));
      if (!joined) TUTTI_RETURN_IF_ERROR(copy_.Copy(*node).status());
    }
    while (!open_.empty()) TUTTI_RETURN_IF_ERROR(Close(0));
    return copy_.Finish();
  }

 private:
  absl::Status CloseGroupsBefore(const Node& node) {
    for (const Node* control : node.control_inputs()) {
      if (!waiting_.contains(control)) continue;
      const auto group = std::find_if(open_.begin(), open_.end(), [&](const Group& candidate) {
        const auto& members = candidate.members;
        return std::find(members.begin(), members.end(), control) != members.end();
      });
      TUTTI_RETURN_IF_ERROR(Close(size_t(group - open_.begin())));
    }
    return absl::OkStatus();
  }

  // Adds `node` to a group if it is an update that may be fused. Updates whose result is used stay
  // as they are, so nothing but a control edge can follow a member.
  absl::StatusOr<bool> Join(const Node& node) {
    bool sparse = false;
    const UpdateOp* op = FindUpdateOp(node.op(), &sparse);
    if (op == nullptr || sparse || uses_.of(node.output(0)) > 0) return false;
    // The fused op is chosen by the dtype of its first input.
    if (node.input(op->learning_rate_input()).dtype() != node.type(0).dtype) return false;
    if (!HasKernel(context_, op->fused_name(), node.type(0).dtype)) return false;
    const int64_t elements = node.input(op->gradient_input()).shape().elements();
    const bool bucketed = BucketOf(node, *op) != nullptr;
    if (!bucketed && (elements < 0 || elements > kSmallElements)) return false;
    std::vector<VariableKey> variables;
    for (int i = 0; i < op->references(); ++i) {
      TUTTI_ASSIGN_OR_RETURN(VariableKey key, VariableKeyOf(node.input(i)));
      variables.push_back(std::move(key));
    }
    Group* const group = FindGroup(node, *op, variables, bucketed ? 0 : elements);
    group->members.push_back(&node);
    waiting_.insert(&node);
    group->variables.insert(group->variables.end(), variables.begin(), variables.end());
    group->elements += std::max<int64_t>(elements, 0);
    return true;
  }

  Group* FindGroup(const Node& node, const UpdateOp& op, const std::vector<VariableKey>& variables,
                   int64_t elements) {
    for (Group& group : open_) {
      if (group.op != &op || !SameKind(*group.members[0], node, op)) continue;
      if (elements > 0 && group.elements + elements > kGroupElements) continue;
      const bool shares = std::any_of(variables.begin(), variables.end(), [&](const auto& key) {
        return std::find(group.variables.begin(), group.variables.end(), key) !=
               group.variables.end();
      });
      if (!shares) return &group;
    }
    open_.push_back({.op = &op});
    return &open_.back();
  }

  absl::Status Close(size_t index) {
    const Group group = std::move(open_[index]);
    open_.erase(open_.begin() + int64_t(index));
    for (const Node* member : group.members) waiting_.erase(member);
    const Node& first = *group.members[0];
    if (group.members.size() == 1) return copy_.Copy(first).status();
    const UpdateOp& op = *group.op;
    NodeSpec fused;
    fused.op = op.fused_name();
    fused.name = copy_.to().UniqueName(first.name() + "_fused");
    fused.device = first.device();
    fused.where = first.where();
    const bool scaled = first.num_inputs() > op.gradient_input() + 1;
    fused.inputs.push_back(copy_.Mapped(first.input(op.learning_rate_input())));
    fused.inputs.push_back(
        copy_.Mapped(first.input(scaled ? op.gradient_input() + 1 : op.learning_rate_input())));
    if (op.takes_step) fused.inputs.push_back(copy_.Mapped(first.input(op.step_input())));
    for (const Node* member : group.members) {
      TUTTI_ASSIGN_OR_RETURN(const NodeSpec spec, copy_.SpecOf(*member));
      fused.inputs.insert(fused.inputs.end(), spec.inputs.begin(),
                          spec.inputs.begin() + op.references());
      fused.inputs.push_back(spec.inputs[op.gradient_input()]);
      for (const Node* control : spec.control_inputs) AddControl(fused, control);
    }
    for (const AttrDef& attr : op.attrs)
      SetAttr(fused.attrs, attr.name, *first.FindAttr(attr.name));
    SetAttr(fused.attrs, "scaled", scaled);
    TUTTI_ASSIGN_OR_RETURN(const Node* added, AddNode(copy_.to(), std::move(fused)));
    for (const Node* member : group.members) copy_.MapControl(*member, {added});
    return absl::OkStatus();
  }

  static void AddControl(NodeSpec& spec, const Node* node) {
    auto& list = spec.control_inputs;
    if (std::find(list.begin(), list.end(), node) == list.end()) list.push_back(node);
  }

  const Program& program_;
  const PassContext& context_;
  const UseCounts uses_;
  ProgramCopy copy_;
  std::vector<Group> open_;
  std::unordered_set<const Node*> waiting_;  // the members of open groups
};

}  // namespace

absl::StatusOr<Program> FuseUpdates(Program program, const PassContext& context) {
  const auto is_update = [](const Node& node) {
    bool sparse = false;
    return FindUpdateOp(node.op(), &sparse) != nullptr;
  };
  if (!HasNode(program, is_update)) return program;
  return Fuser(program, context).Run();
}

}  // namespace tutti
