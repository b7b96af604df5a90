#include "tutti/graph/ops/softmax.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterSoftmaxOps(OpRegistry&) {}

}  // namespace tutti
