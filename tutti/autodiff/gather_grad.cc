#include "tutti/autodiff/register.h"

namespace tutti {

void RegisterGatherGradients(GradientRegistry&) {}

}  // namespace tutti
