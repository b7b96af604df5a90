#pragma once

#include <string_view>

#include "tutti/graph/input.h"

// Matrix algebra on batches of square matrices [..., n, n] of float32 or float64.
namespace tutti {

// The inverse of each matrix, or of its transpose. A singular one is INVALID_ARGUMENT at run time.
Output MatrixInverse(Input a, bool transpose = false, std::string_view name = "");

// [..., n, n] -> [...]. The gradient needs the inverse, so it fails at singular matrices.
Output MatrixDeterminant(Input a, std::string_view name = "");

// The lower triangular L with L L^T = (a + a^T) / 2; above its diagonal L is 0. A matrix whose
// symmetric part is not positive definite is INVALID_ARGUMENT at run time.
Output Cholesky(Input a, std::string_view name = "");

// x with a x = b (a^T x = b if `transpose_a`): a [..., n, n], b [..., n, k]; the leading dimensions
// are equal.
Output MatrixSolve(Input a, Input b, bool transpose_a = false, std::string_view name = "");

}  // namespace tutti
