#pragma once

#include "tutti/device/kernel_registry.h"

// The reference kernels: plain loops over every dtype, the oracle for all others. Each function
// lies in the family's own .cc file.
namespace tutti {

void RegisterRefKernels(KernelRegistry& registry);

void RegisterElementwiseRefKernels(KernelRegistry& registry);  // elementwise.cc
void RegisterActivationRefKernels(KernelRegistry& registry);   // activation.cc
void RegisterShapeRefKernels(KernelRegistry& registry);        // shape.cc
void RegisterArrangeRefKernels(KernelRegistry& registry);      // arrange.cc
void RegisterGatherRefKernels(KernelRegistry& registry);       // gather.cc
void RegisterPartitionRefKernels(KernelRegistry& registry);    // partition.cc
void RegisterReduceRefKernels(KernelRegistry& registry);       // reduce.cc
void RegisterRandomRefKernels(KernelRegistry& registry);       // random.cc
void RegisterMatMulRefKernels(KernelRegistry& registry);       // matmul.cc
void RegisterLinalgRefKernels(KernelRegistry& registry);       // linalg.cc
void RegisterSoftmaxRefKernels(KernelRegistry& registry);      // softmax.cc
void RegisterConvRefKernels(KernelRegistry& registry);         // conv.cc
void RegisterPoolRefKernels(KernelRegistry& registry);         // pool.cc
void RegisterNormRefKernels(KernelRegistry& registry);         // norm.cc
void RegisterStateRefKernels(KernelRegistry& registry);        // state.cc
void RegisterUpdateRefKernels(KernelRegistry& registry);       // update.cc
void RegisterControlRefKernels(KernelRegistry& registry);      // control.cc

// Parts of families that fill more than one file; the family's own function calls them.
void RegisterElementwiseBinaryRefKernels(KernelRegistry& registry);
void RegisterElementwiseSelectRefKernels(KernelRegistry& registry);

// What FuseElementwise makes; fused_elementwise.cc.
void RegisterFusedElementwiseRefKernel(KernelRegistry& registry);

}  // namespace tutti
