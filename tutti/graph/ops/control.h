#pragma once

#include <span>
#include <string_view>

#include "tutti/graph/input.h"

namespace tutti {

// Does nothing; a point for control dependencies.
const Node* NoOp(Graph& graph, std::string_view name = "");

// Done when all of `nodes` are done.
const Node* Group(Graph& graph, std::span<const Node* const> nodes, std::string_view name = "");

}  // namespace tutti
