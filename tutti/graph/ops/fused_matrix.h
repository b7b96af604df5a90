#pragma once

#include "tutti/graph/op_def.h"

namespace tutti {

// _FusedMatMul, _FusedConv2D and _Reorder, which only passes make; called by RegisterMatMulOps.
void RegisterFusedMatrixOps(OpRegistry& registry);

}  // namespace tutti
