#include "tutti/train/optimizers/gradient_list.h"

#include <fmt/format.h>

#include <cmath>

#include "tutti/base/status.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/gather.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"

namespace tutti {
namespace {

Output As(Output value, DType dtype) { return value.dtype() == dtype ? value : Cast(value, dtype); }

// The rows with those of equal index summed: [distinct, ...].
Output DistinctRows(const GradientValue& gradient) {
  const UniqueResult unique = Unique(Reshape(gradient.indices, Shape{-1}));
  const Shape& row_shape = gradient.rows.shape();
  std::vector<Output> dims = {ExpandDims(Size(unique.values), 0)};
  if (row_shape.rank() > 1) {
    dims.push_back(
        Slice(ShapeOf(gradient.rows), std::vector<int64_t>{1}, std::vector<int64_t>{-1}));
  }
  const Output shape = dims.size() == 1 ? dims[0] : Concat(dims, 0);
  return ScatterNd(ExpandDims(unique.indices, -1), gradient.rows, shape);
}

// Computed where the gradient is.
Output SquaredNorm(const GradientAndVariable& entry) {
  const Output where = entry.gradient.sparse() ? entry.gradient.rows : entry.gradient.dense;
  const DeviceScope device(where.graph(), *where.node);
  const Output values =
      entry.gradient.sparse() ? DistinctRows(entry.gradient) : entry.gradient.dense;
  const Output sum = As(Sum(Square(values)), kFloat64);
  return entry.scale ? Mul(sum, Square(As(entry.scale, kFloat64))) : sum;
}

}  // namespace

GradientAndVariable Scaled(GradientAndVariable entry, Output factor) {
  if (!entry.scale) {
    entry.scale = factor;
  } else {
    const bool wide = entry.scale.dtype() == kFloat64 || factor.dtype() == kFloat64;
    const DType dtype = wide ? kFloat64 : factor.dtype();
    entry.scale = Mul(As(entry.scale, dtype), As(factor, dtype));
  }
  return entry;
}

Output GlobalNorm(std::span<const GradientAndVariable> list) {
  std::vector<Output> squares;
  for (const GradientAndVariable& entry : list) {
    if (!entry.gradient.empty()) squares.push_back(SquaredNorm(entry));
  }
  if (squares.empty()) ThrowInvalidArgument("GlobalNorm: no entry of the list has a gradient");
  return Cast(Sqrt(AddN(squares)), kFloat32);
}

std::vector<GradientAndVariable> ClipByGlobalNorm(std::span<const GradientAndVariable> list,
                                                  double norm, Output* global_norm) {
  if (!(norm > 0) || !std::isfinite(float(norm))) {
    ThrowInvalidArgument(
        fmt::format("ClipByGlobalNorm: the norm is {}; expected a finite number above 0", norm));
  }
  if (list.empty()) ThrowInvalidArgument("ClipByGlobalNorm: the list is empty");
  NameScope scope(list.front().variable.graph(), "clip");
  const Output before = GlobalNorm(list);
  if (global_norm != nullptr) *global_norm = before;
  // 1 up to `norm`, then falling; no division by 0 for a zero gradient.
  const Output factor = Div(float(norm), Maximum(before, float(norm)));
  std::vector<GradientAndVariable> clipped;
  for (const GradientAndVariable& entry : list) clipped.push_back(Scaled(entry, factor));
  return clipped;
}

}  // namespace tutti
