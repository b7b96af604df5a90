#include "tutti/autodiff/register.h"

namespace tutti {

void RegisterConvGradients(GradientRegistry&) {}

}  // namespace tutti
