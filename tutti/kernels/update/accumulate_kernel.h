#pragma once

#include <cstdint>
#include <vector>

#include "tutti/device/kernel_registry.h"

// What the plain updates of variables share: finding and locking the variable, checking everything
// before the first byte changes, and splitting the work. What is left to the reference and to the
// CPU kernels is the loop.
namespace tutti {

// to[i] += from[i], or -= from[i], for `count` elements of the type.
using AccumulateFunction = void (*)(DType dtype, bool subtract, void* to, const void* from,
                                    int64_t count);

// Registers AssignAdd, AssignSub, ScatterAdd, ScatterSub and ScatterUpdate on top of the loop.
void AddAccumulateKernels(KernelRegistry& registry, std::string_view kind,
                          const std::vector<DType>& dtypes, AccumulateFunction accumulate);

}  // namespace tutti
