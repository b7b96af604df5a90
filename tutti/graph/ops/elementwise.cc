#include "tutti/graph/ops/elementwise.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterElementwiseOps(OpRegistry&) {}

Output AddN(std::span<const Output> values, std::string_view name) {
  return OpBuilder("AddN", name).In(values).Build();
}

}  // namespace tutti
