#pragma once

#include <cstdint>

#include "tutti/base/team.h"
#include "tutti/device/kernel_registry.h"

namespace tutti {

// y = x + bias in each of `rows` rows of `channels`; with `relu` the positive part of that. x and y
// may be one.
void AddBiasToRows(const Team& team, const float* x, const float* bias, float* y, int64_t rows,
                   int64_t channels, bool relu);

// BiasAdd and BiasAddGrad; called by RegisterConvCpuKernels.
void RegisterBiasCpuKernels(KernelRegistry& registry);

}  // namespace tutti
