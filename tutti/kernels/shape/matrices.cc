#include "tutti/kernels/shape/matrices.h"

namespace tutti {

MatrixBatch::MatrixBatch(const Shape& shape) : rows(shape.dim(-2)), columns(shape.dim(-1)) {
  // Matrices without elements may be more than fit into 63 bits; shape functions have refused those
  // where a result is due for each.
  for (const int64_t dim : shape.dims().first(size_t(shape.rank()) - 2)) {
    count = int64_t(uint64_t(count) * uint64_t(dim));
  }
}

absl::Status SingularMatrix(int64_t batch, int64_t count, int64_t pivot) {
  return InvalidArgument(
      "matrix {} of {} in a is singular (no pivot other than 0 in column {}) and has no inverse",
      batch, count, pivot);
}

absl::Status NotPositiveDefinite(int64_t batch, int64_t count) {
  return InvalidArgument(
      "matrix {} of {} in a is not positive definite and has no Cholesky decomposition", batch,
      count);
}

}  // namespace tutti
