#include "tutti/autodiff/register.h"

namespace tutti {

void RegisterReduceGradients(GradientRegistry&) {}

}  // namespace tutti
