#pragma once

#include <vector>

#include "tutti/graph/graph.h"

namespace tutti::nn {

// The variables of a graph in the order in which they were added; Trainable: those with
// floating-point values that were not made with {.trainable = false}, which is what an optimizer
// updates when it is not told otherwise.
std::vector<Output> Variables(const Graph& graph);
std::vector<Output> TrainableVariables(const Graph& graph);

// How many numbers the variables hold together.
int64_t CountParameters(const std::vector<Output>& variables);

}  // namespace tutti::nn
