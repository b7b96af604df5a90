#include "tutti/autodiff/register.h"

namespace tutti {

void RegisterRandomGradients(GradientRegistry&) {}

}  // namespace tutti
