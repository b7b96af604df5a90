#include "tutti/graph/ops/control.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterControlOps(OpRegistry& registry) {
  registry.Add(
      {.name = "NoOp", .infer = [](InferContext&) { return absl::OkStatus(); }, .stateful = true});
}

const Node* NoOp(Graph& graph, std::string_view name) {
  return OpBuilder("NoOp", name).On(graph).BuildNode();
}

const Node* Group(Graph& graph, std::span<const Node* const> nodes, std::string_view name) {
  return OpBuilder("NoOp", name.empty() ? "" : name).On(graph).After(nodes).BuildNode();
}

}  // namespace tutti
