#include "tutti/graph/ops/pool.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterPoolOps(OpRegistry&) {}

}  // namespace tutti
