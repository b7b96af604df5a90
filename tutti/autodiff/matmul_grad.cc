#include "tutti/autodiff/register.h"

namespace tutti {

void RegisterMatMulGradients(GradientRegistry&) {}

}  // namespace tutti
