#include "tutti/graph/ops/gather.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterGatherOps(OpRegistry&) {}

Output ScatterNd(Input indices, Input updates, Input shape, std::string_view name) {
  return OpBuilder("ScatterNd", name).In(indices).In(updates).In(shape).Build();
}

}  // namespace tutti
