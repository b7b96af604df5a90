#pragma once

#include <string_view>

#include "tutti/device/kernel_registry.h"
#include "tutti/kernels/shape/strided_copy.h"

namespace tutti {

// Registers the ops that only move elements (Transpose, Concat, Slice, ...) under `kind`. They work
// out what goes where and leave the copying to `copy`; so the reference and the fast kernels differ
// in that one function.
void RegisterMovingKernels(KernelRegistry& registry, std::string_view kind, CopyFunction copy);

}  // namespace tutti
