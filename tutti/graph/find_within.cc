#include "tutti/graph/find_within.h"

namespace tutti {

const Node* FindWithin(const Node& node, const std::function<bool(const Node&)>& matches) {
  if (matches(node)) return &node;
  for (const auto& [name, value] : node.attrs()) {
    const auto* subgraph = std::get_if<std::shared_ptr<const Subgraph>>(&value);
    if (subgraph == nullptr || *subgraph == nullptr) continue;
    for (const auto& inner : (*subgraph)->graph->nodes()) {
      if (const Node* found = FindWithin(*inner, matches)) return found;
    }
  }
  return nullptr;
}

}  // namespace tutti
