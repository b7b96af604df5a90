#include "tutti/graph/ops/linalg.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterLinalgOps(OpRegistry&) {}

}  // namespace tutti
