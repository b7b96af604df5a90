#include "tutti/autodiff/register.h"

namespace tutti {

void RegisterShapeGradients(GradientRegistry&) {}

}  // namespace tutti
