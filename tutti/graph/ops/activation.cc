#include "tutti/graph/ops/activation.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterActivationOps(OpRegistry&) {}

}  // namespace tutti
