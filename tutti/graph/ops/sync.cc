#include "tutti/graph/ops/sync.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterSyncOps(OpRegistry&) {}

}  // namespace tutti
