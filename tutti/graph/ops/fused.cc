#include "tutti/graph/ops/fused.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/elementwise_program.h"
#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterFusedOps(OpRegistry& registry) { RegisterFusedElementwiseOp(registry); }

}  // namespace tutti
