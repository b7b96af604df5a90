#pragma once

#include "tutti/base/status.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// A C++ number, given as a scalar, as a scalar of another dtype. Floating types round, as numbers
// in source code do; everything else that would change the value is INVALID_ARGUMENT and names
// value and dtype: 300 as int8, 1.5 as int32, 1e300 as float32, 2 as bool.
absl::StatusOr<Tensor> NumberAs(const Tensor& number, DType dtype);
absl::StatusOr<Tensor> NumberAs(double number, DType dtype);

}  // namespace tutti
