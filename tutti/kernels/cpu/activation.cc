#include "tutti/device/device.h"
#include "tutti/kernels/cpu/elementwise_kernels.h"
#include "tutti/kernels/cpu/register.h"

namespace tutti {

void RegisterActivationCpuKernels(KernelRegistry& registry) {
  for (const char* op : {"Relu", "Relu6", "LeakyRelu", "Elu", "Tanh", "Gelu"}) {
    AddUnaryLoop(registry, op, /*zero_at_zero=*/true);
  }
  for (const char* op : {"Sigmoid", "Softplus"}) {
    AddUnaryLoop(registry, op, /*zero_at_zero=*/false);
  }
  for (const char* op : {"ReluGrad", "Relu6Grad", "LeakyReluGrad", "EluGrad", "SigmoidGrad",
                         "TanhGrad", "SoftplusGrad", "GeluGrad"}) {
    AddPairLoop(registry, op);
  }
}

}  // namespace tutti
