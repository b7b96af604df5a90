#include "tutti/autodiff/register.h"

namespace tutti {

void RegisterControlGradients(GradientRegistry&) {}

}  // namespace tutti
