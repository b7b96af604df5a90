#include "tutti/autodiff/register.h"

namespace tutti {

void RegisterLinalgGradients(GradientRegistry&) {}

}  // namespace tutti
