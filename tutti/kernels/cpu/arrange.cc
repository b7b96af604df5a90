#include "tutti/kernels/arrange_kernels.h"
#include "tutti/kernels/cpu/register.h"
#include "tutti/kernels/cpu/strided_copy.h"

namespace tutti {

void RegisterArrangeCpuKernels(KernelRegistry& registry) {
  RegisterMovingKernels(registry, "cpu", FastStridedCopy);
}

}  // namespace tutti
