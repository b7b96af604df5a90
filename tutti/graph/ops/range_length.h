#pragma once

#include "tutti/base/status.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// How many values Range(start, limit, delta) has; shared by its shape function and its kernel.
// REQUIRES: scalars of one dtype, int32, int64, float32 or float64. An error when delta is 0 or not
// finite, or there are too many to count.
absl::StatusOr<int64_t> RangeLength(const Tensor& start, const Tensor& limit, const Tensor& delta);

}  // namespace tutti
