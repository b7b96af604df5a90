#include "tutti/autodiff/register.h"

namespace tutti {

void RegisterPoolGradients(GradientRegistry&) {}

}  // namespace tutti
