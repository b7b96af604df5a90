#include "tutti/graph/ops/conv.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterConvOps(OpRegistry&) {}

}  // namespace tutti
