#include "tutti/autodiff/register.h"

namespace tutti {

void RegisterElementwiseGradients(GradientRegistry&) {}

}  // namespace tutti
