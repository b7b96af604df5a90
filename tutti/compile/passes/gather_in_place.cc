// A Gather of rows of a variable becomes a node that copies them from where the variable lives,
// under its lock. The plain form holds a reference to the whole table from the moment the variable
// is read until the rows are copied, and that may be long: the indices may come from another task.
// An update that meets the reference works on a copy of the table, which for a large one is a
// gigabyte.
//
// A read sees the value from the start of the step. So the Gather must come before all updates of
// its variable in the step; readers that were built before an update do. One that was built after
// an update keeps its reference.
#include <unordered_map>

#include "tutti/compile/passes/node_facts.h"
#include "tutti/compile/passes/passes.h"
#include "tutti/graph/op_def.h"

namespace tutti {
namespace {

constexpr std::string_view kInPlace = "_GatherRows";

bool IsRowsOfVariable(const Node& node) {
  if (node.op() != "Gather") return false;
  const Node& params = *node.input(0).node;
  if (params.op() != "Variable" || !params.control_inputs().empty()) return false;
  const int64_t axis = node.attr<int64_t>("axis");
  const Shape& shape = node.input(0).shape();
  return axis == 0 || (shape.has_rank() && axis == -int64_t(shape.rank()));
}

// By variable: the first node that updates it.
std::unordered_map<const Node*, int64_t> FirstUpdates(const Program& program) {
  std::unordered_map<const Node*, int64_t> first;
  for (const auto& node : program.graph->nodes()) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (node->def().IsVariableInput(i) && !node->def().reads_references) {
        first.try_emplace(node->input(i).node, node->id());
      }
      // The body of an If or While may update what it is given.
      if (node->def().has_subgraphs()) first.try_emplace(node->input(i).node, node->id());
    }
  }
  return first;
}

}  // namespace

absl::StatusOr<Program> GatherInPlace(Program program, const PassContext& context) {
  if (!HasNode(program, IsRowsOfVariable)) return program;
  const std::unordered_map<const Node*, int64_t> updates = FirstUpdates(program);
  ProgramCopy copy(program);
  for (const auto& node : program.graph->nodes()) {
    TUTTI_ASSIGN_OR_RETURN(NodeSpec spec, copy.SpecOf(*node));
    if (IsRowsOfVariable(*node) && HasKernel(context, kInPlace, node->input(0).dtype())) {
      const auto update = updates.find(node->input(0).node);
      if (update == updates.end() || update->second > node->id()) {
        spec.op = kInPlace;
        SetAttr(spec.attrs, "axis", int64_t{0});
      }
    }
    TUTTI_RETURN_IF_ERROR(copy.AddAs(*node, std::move(spec)).status());
  }
  return copy.Finish();
}

}  // namespace tutti
