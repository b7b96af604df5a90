#include "tutti/autodiff/register.h"

namespace tutti {

void RegisterNormGradients(GradientRegistry&) {}

}  // namespace tutti
