#include "tutti/graph/ops/random.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterRandomOps(OpRegistry&) {}

}  // namespace tutti
