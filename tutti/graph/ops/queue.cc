#include "tutti/graph/ops/queue.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterQueueOps(OpRegistry&) {}

}  // namespace tutti
