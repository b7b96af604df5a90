// Keeps what the fetches and targets need. A node's consumers all have larger ids, so one walk from
// the last node to the first marks everything.
#include "tutti/compile/passes/passes.h"

namespace tutti {

absl::StatusOr<Program> Prune(Program program, const PassContext&) {
  const auto& nodes = program.graph->nodes();
  std::vector<bool> needed(nodes.size(), false);
  std::vector<bool> fed(nodes.size(), false);
  for (const Output& feed : program.feeds) fed[size_t(feed.node->id())] = true;
  for (const Output& fetch : program.fetches) needed[size_t(fetch.node->id())] = true;
  for (const Node* target : program.targets) needed[size_t(target->id())] = true;
  for (size_t i = nodes.size(); i-- > 0;) {
    // A fed value is there before the step starts and waits for nothing.
    if (!needed[i] || fed[i]) continue;
    for (const Output& input : nodes[i]->inputs()) needed[size_t(input.node->id())] = true;
    for (const Node* control : nodes[i]->control_inputs()) needed[size_t(control->id())] = true;
  }
  bool changes = false;
  for (size_t i = 0; i < nodes.size(); ++i) {
    changes = changes || (fed[i] ? !nodes[i]->control_inputs().empty() : !needed[i]);
  }
  if (!changes) return program;
  ProgramCopy copy(program);
  for (size_t i = 0; i < nodes.size(); ++i) {
    // Feeds stay, needed or not: the request has values for them.
    if (fed[i]) {
      NodeSpec spec = nodes[i]->spec();
      spec.control_inputs.clear();
      TUTTI_RETURN_IF_ERROR(copy.AddAs(*nodes[i], std::move(spec)).status());
    } else if (needed[i]) {
      TUTTI_RETURN_IF_ERROR(copy.Copy(*nodes[i]).status());
    }
  }
  return copy.Finish();
}

}  // namespace tutti
