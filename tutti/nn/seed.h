#pragma once

#include <cstdint>

#include "tutti/graph/graph.h"

namespace tutti {

// Fixes all that is random in what initialisers and layers add to `graph` afterwards: first values,
// dropout. The seed is kept in the graph, as the Constant "seed", so that a graph that is written
// and read back has it too. Throws Error when it was set before.
void SetSeed(Graph& graph, int64_t seed);

// What SetSeed set; 0 when it was not called.
int64_t SeedOf(const Graph& graph);

}  // namespace tutti
