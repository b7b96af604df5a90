#include "tutti/device/device.h"
#include "tutti/kernels/ref/register.h"

namespace tutti {

void RegisterFusedRefKernels(KernelRegistry& registry) {
  RegisterFusedElementwiseRefKernel(registry);
}

}  // namespace tutti
