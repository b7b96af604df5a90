#pragma once

#include "tutti/device/kernel_registry.h"

// The kernels of CPU devices. Each function lies in the family's own .cc file.
namespace tutti {

void RegisterCpuKernels(KernelRegistry& registry);

void RegisterElementwiseCpuKernels(KernelRegistry& registry);  // elementwise.cc
void RegisterActivationCpuKernels(KernelRegistry& registry);   // activation.cc
void RegisterArrangeCpuKernels(KernelRegistry& registry);      // arrange.cc
void RegisterGatherCpuKernels(KernelRegistry& registry);       // gather.cc
void RegisterGatherRowsCpuKernels(KernelRegistry& registry);   // gather_rows.cc
void RegisterPartitionCpuKernels(KernelRegistry& registry);    // partition.cc
void RegisterRowMessageCpuKernels(KernelRegistry& registry);   // row_messages.cc
void RegisterReduceCpuKernels(KernelRegistry& registry);       // reduce.cc
void RegisterBroadcastCpuKernels(KernelRegistry& registry);    // broadcast.cc, for reduce.cc
void RegisterCumsumCpuKernels(KernelRegistry& registry);       // cumsum.cc, for reduce.cc
void RegisterRandomCpuKernels(KernelRegistry& registry);       // random.cc
void RegisterMatMulCpuKernels(KernelRegistry& registry);       // matmul.cc
void RegisterLinalgCpuKernels(KernelRegistry& registry);       // linalg.cc
void RegisterSoftmaxCpuKernels(KernelRegistry& registry);      // softmax.cc
void RegisterConvCpuKernels(KernelRegistry& registry);         // conv.cc
void RegisterPoolCpuKernels(KernelRegistry& registry);         // pool.cc
void RegisterNormCpuKernels(KernelRegistry& registry);         // norm.cc
void RegisterStateCpuKernels(KernelRegistry& registry);        // state.cc
void RegisterUpdateCpuKernels(KernelRegistry& registry);       // update.cc
void RegisterQueueCpuKernels(KernelRegistry& registry);        // queue.cc
void RegisterSyncCpuKernels(KernelRegistry& registry);         // sync.cc

// What FuseElementwise makes; fused_elementwise.cc.
void RegisterFusedElementwiseCpuKernel(KernelRegistry& registry);

}  // namespace tutti
