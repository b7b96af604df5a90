#pragma once

#include "tutti/autodiff/gradient_registry.h"

// The gradients of all op families. Each function lies in <family>_grad.cc.
namespace tutti {

void RegisterAllGradients(GradientRegistry& registry);

void RegisterElementwiseGradients(GradientRegistry& registry);
void RegisterActivationGradients(GradientRegistry& registry);
void RegisterShapeGradients(GradientRegistry& registry);
void RegisterArrangeGradients(GradientRegistry& registry);
void RegisterGatherGradients(GradientRegistry& registry);
void RegisterReduceGradients(GradientRegistry& registry);
void RegisterRandomGradients(GradientRegistry& registry);
void RegisterMatMulGradients(GradientRegistry& registry);
void RegisterLinalgGradients(GradientRegistry& registry);
void RegisterSoftmaxGradients(GradientRegistry& registry);
void RegisterConvGradients(GradientRegistry& registry);
void RegisterPoolGradients(GradientRegistry& registry);
void RegisterNormGradients(GradientRegistry& registry);
void RegisterControlGradients(GradientRegistry& registry);

}  // namespace tutti
