#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/graph/graph.h"

namespace tutti {

// A variable as checkpoints know it: a variable that a strategy has split is saved under the name
// of the whole, so that it can be restored in other parts.
struct SavedName {
  Output variable;
  std::string name;       // of the whole variable
  Shape whole;            // its shape
  int64_t first_row = 0;  // where the rows of `variable` begin in it
  std::string slot_of;    // the variable whose slot of an optimizer it is; empty: it is none
};

// Those of all variables of a graph, in the order of their nodes.
std::vector<SavedName> SavedNames(const Graph& graph);

}  // namespace tutti
