#pragma once

#include <cstdint>

#include "tutti/tensor/tensor.h"

namespace tutti {

// Elements [begin, end) of `from` into the same places of `to`, between any two dtypes as Cast
// promises. REQUIRES: both have those elements.
void ConvertElements(const Tensor& from, Tensor& to, int64_t begin, int64_t end);

}  // namespace tutti
