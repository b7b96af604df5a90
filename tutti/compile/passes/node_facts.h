#pragma once

#include <functional>

#include "tutti/compile/program.h"

// What several passes ask about a node.
namespace tutti {

// The value of a Constant that waits for nothing; null for anything else. One with control inputs
// is left alone by the passes, because what uses it waits for those too.
const Tensor* ConstantOf(Output output);

// A Variable, or the Arg that stands for one in a subgraph: its value is what it is when it is
// read, so a node that reads it must stay where it is.
bool IsVariable(Output output);

// Does running the node change something that others can see? Reading a variable or drawing random
// numbers does not.
bool HasEffects(const Node& node);

// A node with the same inputs gives the same outputs, and nobody can tell how often it ran.
bool IsPure(const Node& node);

// Has the program such a node? A pass that looks for some ops asks before it counts and copies.
bool HasNode(const Program& program, const std::function<bool(const Node&)>& matches);

}  // namespace tutti
