#pragma once

#include "tutti/graph/input.h"
#include "tutti/graph/ops/shape.h"

namespace tutti {

// The dimensions of x as an integer vector: a constant where the graph knows them, so that the
// gradient does not hang on x itself.
inline Input DimsOf(Output x) {
  if (!x.shape().IsFullyKnown()) return ShapeOf(x);
  return Tensor::Of<int64_t>(Shape{x.shape().rank()}, x.shape().dims());
}

}  // namespace tutti
