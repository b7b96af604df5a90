#include "tutti/device/device.h"
#include "tutti/kernels/cpu/fused_elementwise.h"
#include "tutti/kernels/cpu/register.h"

namespace tutti {

void RegisterFusedCpuKernels(KernelRegistry& registry) {
  RegisterFusedElementwiseCpuKernel(registry);
}

}  // namespace tutti
