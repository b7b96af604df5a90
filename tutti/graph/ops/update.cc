#include "tutti/graph/ops/update.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterUpdateOps(OpRegistry&) {}

}  // namespace tutti
