#include "tutti/autodiff/register.h"

namespace tutti {

void RegisterActivationGradients(GradientRegistry&) {}

}  // namespace tutti
