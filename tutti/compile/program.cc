#include "tutti/compile/program.h"

#include <algorithm>
#include <unordered_set>

#include "tutti/base/check.h"
#include "tutti/graph/build.h"

namespace tutti {

namespace {

// Keeps the first of equal nodes, in their order.
void RemoveRepeats(std::vector<const Node*>& nodes) {
  if (nodes.size() < 2) return;
  std::unordered_set<const Node*> seen;
  std::erase_if(nodes, [&](const Node* node) { return !seen.insert(node).second; });
}

}  // namespace

ProgramCopy::ProgramCopy(const Program& from) : from_(from) {
  entries_.resize(size_t(from.graph->size()));
  result_.graph->Reserve(from.graph->size());
  result_.memory.arenas = from.memory.arenas;
}

ProgramCopy::Entry& ProgramCopy::EntryOf(const Node& original) {
  const auto id = size_t(original.id());
  if (id >= entries_.size()) entries_.resize(std::max(id + 1, 2 * entries_.size()));
  TUTTI_CHECK(entries_[id].original == nullptr || entries_[id].original == &original);
  entries_[id].original = &original;
  return entries_[id];
}

const ProgramCopy::Entry* ProgramCopy::FindEntry(const Node& original) const {
  const auto id = size_t(original.id());
  if (id >= entries_.size() || entries_[id].original != &original) return nullptr;
  return &entries_[id];
}

void ProgramCopy::Map(Output original, Output replacement) {
  if (original.index == 0) {
    EntryOf(*original.node).output = replacement;
  } else {
    more_outputs_[original] = replacement;
  }
}

void ProgramCopy::MapControl(const Node& original, std::vector<const Node*> replacements) {
  Entry& entry = EntryOf(original);
  entry.control_mapped = true;
  entry.control = replacements.size() == 1 ? replacements[0] : nullptr;
  if (entry.control == nullptr) more_control_[&original] = std::move(replacements);
}

bool ProgramCopy::AppendControl(const Node& original, std::vector<const Node*>& nodes) const {
  const Entry* entry = FindEntry(original);
  if (entry == nullptr || !entry->control_mapped) return false;
  if (entry->control != nullptr) {
    nodes.push_back(entry->control);
  } else {
    const std::vector<const Node*>& more = more_control_.at(&original);
    nodes.insert(nodes.end(), more.begin(), more.end());
  }
  return true;
}

Output ProgramCopy::Mapped(Output original) const {
  if (original.index == 0) {
    const Entry* entry = FindEntry(*original.node);
    return entry == nullptr ? Output{} : entry->output;
  }
  const auto it = more_outputs_.find(original);
  return it == more_outputs_.end() ? Output{} : it->second;
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
  for (const Node* original : spec.control_inputs) AppendControl(*original, control);
  RemoveRepeats(control);
  spec.control_inputs = std::move(control);
  return spec;
}

absl::StatusOr<Node*> ProgramCopy::AddAs(const Node& node, NodeSpec spec) {
  TUTTI_ASSIGN_OR_RETURN(Node * copy, AddNode(to(), std::move(spec)));
  for (int i = 0; i < std::min(node.num_outputs(), copy->num_outputs()); ++i) {
    Map(node.output(i), copy->output(i));
  }
  MapControl(node, {copy});
  memory().CopyNode(from_.memory, node, *copy);
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
    if (!AppendControl(*target, result_.targets)) {
      return Internal("{} was lost by a pass", target->Describe());
    }
  }
  RemoveRepeats(result_.targets);
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
