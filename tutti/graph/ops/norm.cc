#include "tutti/graph/ops/norm.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterNormOps(OpRegistry&) {}

}  // namespace tutti
