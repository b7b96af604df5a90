#include "tutti/graph/ops/reduce.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterReduceOps(OpRegistry&) {}

}  // namespace tutti
