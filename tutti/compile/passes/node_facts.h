#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tutti/compile/passes/passes.h"
#include "tutti/compile/program.h"

// What several passes ask about a node.
namespace tutti {

// The value of a Constant that waits for nothing; null for anything else. One with control inputs
// is left alone by the passes, because what uses it waits for those too.
const Tensor* ConstantOf(Output output);

// A Variable, or the Arg that stands for one in a subgraph: its value is what it is when it is
// read, so a node that reads it must stay where it is.
bool IsVariable(Output output);

// A node with the same inputs gives the same outputs, and nobody can tell how often it ran.
bool IsPure(const Node& node);

// Is there a kernel of `op` for the device of the context, or "cpu" without one? A pass asks before
// it makes an op that the program did not have, and leaves the program alone where there is none.
bool HasKernel(const PassContext& context, std::string_view op, DType dtype);

// The type of the device that `node` was placed on; "cpu" before.
std::string DeviceTypeOf(const Node& node);

// Like HasKernel, for the device that `node` was placed on. False for a type of device that this
// process has no kernels for.
bool HasKernelWhereItRuns(const Node& node, std::string_view op, DType dtype);

// Has the program such a node? A pass that looks for some ops asks before it counts and copies.
bool HasNode(const Program& program, const std::function<bool(const Node&)>& matches);

}  // namespace tutti
