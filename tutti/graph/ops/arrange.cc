#include "tutti/graph/ops/arrange.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterArrangeOps(OpRegistry&) {}

Output Concat(std::span<const Output> values, int axis, std::string_view name) {
  return OpBuilder("Concat", name).In(values).Attr("axis", axis).Build();
}

}  // namespace tutti
