#pragma once

#include <cstdint>

#include "tutti/base/status.h"
#include "tutti/tensor/shape.h"

// What the kernels of linalg share.
namespace tutti {

// [..., rows, columns] as a list of matrices. REQUIRES: the shape has two dimensions or more.
struct MatrixBatch {
  explicit MatrixBatch(const Shape& shape);
  int64_t count = 1;
  int64_t rows;
  int64_t columns;
};

// INVALID_ARGUMENT for matrix `batch` of `count`.
absl::Status SingularMatrix(int64_t batch, int64_t count, int64_t pivot);
absl::Status NotPositiveDefinite(int64_t batch, int64_t count);

}  // namespace tutti
