#pragma once

#include "tutti/graph/op_def.h"

// The table of contents of all op families. Each function lies in the family's own .cc file.
namespace tutti {

void RegisterAllOps(OpRegistry& registry);

void RegisterSourceOps(OpRegistry& registry);   // source.cc: Constant, Placeholder, Arg
void RegisterControlOps(OpRegistry& registry);  // control.cc: NoOp, Group
void RegisterMatMulOps(OpRegistry& registry);   // matmul.cc
void RegisterStateOps(OpRegistry& registry);    // state.cc: Variable, Assign, IsInitialized

}  // namespace tutti
