#include "tutti/device/device.h"
#include "tutti/kernels/cpu/register.h"

namespace tutti {

void RegisterStateCpuKernels(KernelRegistry&) {}

}  // namespace tutti
