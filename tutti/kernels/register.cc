#include "tutti/kernels/register.h"

#include "tutti/kernels/cpu/register.h"
#include "tutti/kernels/ref/register.h"

namespace tutti {

void RegisterCpuKernels() {
  [[maybe_unused]] static const bool done = [] {
    RegisterRefKernels(KernelRegistry::Global());
    RegisterCpuKernels(KernelRegistry::Global());
    return true;
  }();
}

}  // namespace tutti
