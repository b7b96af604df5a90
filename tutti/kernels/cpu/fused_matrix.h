#pragma once

#include "tutti/device/kernel_registry.h"

namespace tutti {

// _FusedMatMul and _Reorder; called by RegisterMatMulCpuKernels. (_FusedConv2D is Conv2D's kernel.)
void RegisterFusedMatrixCpuKernels(KernelRegistry& registry);
void RegisterMatMulDescentCpuKernel(KernelRegistry& registry);  // matmul_descent.cc

}  // namespace tutti
