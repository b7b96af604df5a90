#include "tutti/autodiff/register.h"

namespace tutti {

void RegisterSoftmaxGradients(GradientRegistry&) {}

}  // namespace tutti
