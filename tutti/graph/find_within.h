#pragma once

#include <functional>

#include "tutti/graph/graph.h"

namespace tutti {

// The first that `matches` of `node` and, at any depth, the nodes of its subgraphs (the bodies of
// If and While); null when none does. Recurses, but subgraphs nest at most 64 deep.
const Node* FindWithin(const Node& node, const std::function<bool(const Node&)>& matches);

}  // namespace tutti
