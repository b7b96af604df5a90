#include "tutti/compile/program.h"

#include <algorithm>

#include "tutti/graph/build.h"

namespace tutti {

ProgramCopy::ProgramCopy(const Program& from) : from_(from) {}

Output ProgramCopy::Mapped(Output original) const {
  const auto it = outputs_.find(original);
  return it == outputs_.end() ? Output{} : it->second;
}

std::vector<Output> ProgramCopy::Mapped(const std::vector<Output>& originals) const {
  std::vector<Output> mapped;
  mapped.reserve(originals.size());
  for (const Output& original : originals) mapped.push_back(Mapped(original));
  return mapped;
}

absl::StatusOr<NodeSpec> ProgramCopy::SpecOf(const Node& node) const {
  NodeSpec spec = node.spec();
  for (Output& input : spec.inputs) {
    const Output mapped = Mapped(input);
    if (!mapped)
      return Internal("{}: input {} was not copied", node.Describe(), input.node->Describe());
    input = mapped;
  }
  std::vector<const Node*> control;
  for (const Node* original : spec.control_inputs) {
    const auto it = control_.find(original);
    if (it == control_.end()) continue;
    for (const Node* replacement : it->second) {
      if (std::find(control.begin(), control.end(), replacement) == control.end()) {
        control.push_back(replacement);
      }
    }
  }
  spec.control_inputs = std::move(control);
  return spec;
}

absl::StatusOr<Node*> ProgramCopy::AddAs(const Node& node, NodeSpec spec) {
  TUTTI_ASSIGN_OR_RETURN(Node * copy, AddNode(to(), std::move(spec)));
  for (int i = 0; i < std::min(node.num_outputs(), copy->num_outputs()); ++i) {
    Map(node.output(i), copy->output(i));
  }
  MapControl(node, {copy});
  return copy;
}

absl::StatusOr<Node*> ProgramCopy::Copy(const Node& node) {
  TUTTI_ASSIGN_OR_RETURN(NodeSpec spec, SpecOf(node));
  return AddAs(node, std::move(spec));
}

absl::StatusOr<Program> ProgramCopy::Finish() {
  const auto map_all = [&](const std::vector<Output>& from,
                           std::vector<Output>& to) -> absl::Status {
    for (const Output& output : from) {
      const Output mapped = Mapped(output);
      if (!mapped) return Internal("{} was lost by a pass", output.node->Describe());
      to.push_back(mapped);
    }
    return absl::OkStatus();
  };
  TUTTI_RETURN_IF_ERROR(map_all(from_.feeds, result_.feeds));
  TUTTI_RETURN_IF_ERROR(map_all(from_.fetches, result_.fetches));
  for (const Node* target : from_.targets) {
    const auto it = control_.find(target);
    if (it == control_.end()) return Internal("{} was lost by a pass", target->Describe());
    for (const Node* replacement : it->second) {
      if (std::find(result_.targets.begin(), result_.targets.end(), replacement) ==
          result_.targets.end()) {
        result_.targets.push_back(replacement);
      }
    }
  }
  return std::move(result_);
}

UseCounts::UseCounts(const Program& program) {
  for (const auto& node : program.graph->nodes()) {
    for (const Output& input : node->inputs()) {
      ++counts_[input];
      consumers_[input].push_back(node.get());
    }
    for (const Node* control : node->control_inputs()) ++control_[control];
  }
  for (const Output& fetch : program.fetches) ++counts_[fetch];
  for (const Node* target : program.targets) ++control_[target];
}

int UseCounts::of(Output output) const {
  const auto it = counts_.find(output);
  return it == counts_.end() ? 0 : it->second;
}

const std::vector<const Node*>& UseCounts::consumers(Output output) const {
  const auto it = consumers_.find(output);
  return it == consumers_.end() ? none_ : it->second;
}

}  // namespace tutti
