#include "tutti/graph/ops/shape.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterShapeOps(OpRegistry&) {}

Output ShapeOf(Input x, DType dtype, std::string_view name) {
  return OpBuilder("Shape", name).In(x).Attr("dtype", dtype).Build();
}
Output ZerosLike(Input x, std::string_view name) {
  return OpBuilder("ZerosLike", name).In(x).Build();
}
Output OnesLike(Input x, std::string_view name) {
  return OpBuilder("OnesLike", name).In(x).Build();
}
Output ExpandDims(Input x, int axis, std::string_view name) {
  return OpBuilder("ExpandDims", name).In(x).Attr("axis", axis).Build();
}

}  // namespace tutti
