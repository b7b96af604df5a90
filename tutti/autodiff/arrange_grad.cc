#include "tutti/autodiff/register.h"

namespace tutti {

void RegisterArrangeGradients(GradientRegistry&) {}

}  // namespace tutti
