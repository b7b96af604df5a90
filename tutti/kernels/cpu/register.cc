#include "tutti/kernels/cpu/register.h"

namespace tutti {

void RegisterCpuKernels(KernelRegistry& registry) {
  RegisterElementwiseCpuKernels(registry);
  RegisterActivationCpuKernels(registry);
  RegisterArrangeCpuKernels(registry);
  RegisterGatherCpuKernels(registry);
  RegisterGatherRowsCpuKernels(registry);
  RegisterPartitionCpuKernels(registry);
  RegisterRowMessageCpuKernels(registry);
  RegisterReduceCpuKernels(registry);
  RegisterRandomCpuKernels(registry);
  RegisterMatMulCpuKernels(registry);
  RegisterLinalgCpuKernels(registry);
  RegisterSoftmaxCpuKernels(registry);
  RegisterConvCpuKernels(registry);
  RegisterPoolCpuKernels(registry);
  RegisterNormCpuKernels(registry);
  RegisterStateCpuKernels(registry);
  RegisterUpdateCpuKernels(registry);
  RegisterFusedElementwiseCpuKernel(registry);
  RegisterQueueCpuKernels(registry);
  RegisterSyncCpuKernels(registry);
}

}  // namespace tutti
