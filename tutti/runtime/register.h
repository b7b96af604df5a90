#pragma once

#include "tutti/device/kernel_registry.h"

namespace tutti {

// The kernels that need the runtime. Called once by whoever makes a worker; more calls do nothing.
// Thread-safe.
void RegisterRuntimeKernels();

void RegisterCollectiveKernels(
    KernelRegistry& registry);  // collective_kernels.cc: AllReduce, Broadcast, AllGather
void RegisterControlFlowKernels(KernelRegistry& registry);  // control_flow.cc: If, While
void RegisterTransferKernels(KernelRegistry& registry);     // transfer.cc: Send, Recv

}  // namespace tutti
