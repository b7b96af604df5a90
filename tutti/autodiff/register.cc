#include "tutti/autodiff/register.h"

namespace tutti {

void RegisterAllGradients(GradientRegistry& registry) {
  RegisterElementwiseGradients(registry);
  RegisterActivationGradients(registry);
  RegisterShapeGradients(registry);
  RegisterArrangeGradients(registry);
  RegisterGatherGradients(registry);
  RegisterReduceGradients(registry);
  RegisterRandomGradients(registry);
  RegisterMatMulGradients(registry);
  RegisterLinalgGradients(registry);
  RegisterSoftmaxGradients(registry);
  RegisterConvGradients(registry);
  RegisterPoolGradients(registry);
  RegisterNormGradients(registry);
  RegisterControlGradients(registry);
}

}  // namespace tutti
