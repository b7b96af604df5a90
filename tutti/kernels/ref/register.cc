#include "tutti/kernels/ref/register.h"

namespace tutti {

void RegisterRefKernels(KernelRegistry& registry) {
  RegisterElementwiseRefKernels(registry);
  RegisterActivationRefKernels(registry);
  RegisterShapeRefKernels(registry);
  RegisterArrangeRefKernels(registry);
  RegisterGatherRefKernels(registry);
  RegisterPartitionRefKernels(registry);
  RegisterReduceRefKernels(registry);
  RegisterRandomRefKernels(registry);
  RegisterMatMulRefKernels(registry);
  RegisterLinalgRefKernels(registry);
  RegisterSoftmaxRefKernels(registry);
  RegisterConvRefKernels(registry);
  RegisterPoolRefKernels(registry);
  RegisterNormRefKernels(registry);
  RegisterStateRefKernels(registry);
  RegisterUpdateRefKernels(registry);
  RegisterControlRefKernels(registry);
  RegisterFusedElementwiseRefKernel(registry);
}

}  // namespace tutti
