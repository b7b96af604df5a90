#include "tutti/graph/ops/fused.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterFusedOps(OpRegistry&) {}

}  // namespace tutti
