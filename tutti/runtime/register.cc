#include "tutti/runtime/register.h"

namespace tutti {

void RegisterRuntimeKernels() {
  [[maybe_unused]] static const bool done = [] {
    RegisterCollectiveKernels(KernelRegistry::Global());
    RegisterControlFlowKernels(KernelRegistry::Global());
    RegisterTransferKernels(KernelRegistry::Global());
    return true;
  }();
}

}  // namespace tutti
