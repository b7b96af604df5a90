// Gradients of matrix algebra. Below, g is the gradient that arrives and ' is transposition.
#include "tutti/autodiff/gradient_registry.h"
#include "tutti/autodiff/register.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/linalg.h"
#include "tutti/graph/ops/matmul.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"

namespace tutti {
namespace {

// y = inverse(a): da = -y' g y'.  y = inverse(a'): da = -(y' g y')' = -y g' y.
void MatrixInverseGradient(GradientContext& g) {
  const Output y = g.output(0);
  const bool transpose = g.node().attr<bool>("transpose");
  const Output left = transpose ? BatchMatMul(y, g.gradient(), {.transpose_b = true})
                                : BatchMatMul(y, g.gradient(), {.transpose_a = true});
  g.Set(0, Neg(BatchMatMul(left, y, {.transpose_b = !transpose})));
}

// da = g * det(a) * inverse(a)'.
void MatrixDeterminantGradient(GradientContext& g) {
  const Output factor = Mul(g.gradient(), g.output(0));
  const Output matrices = ExpandDims(ExpandDims(factor, -1), -1);
  g.Set(0, Mul(matrices, MatrixInverse(g.input(0), true)));
}

// x = inverse(a) b: db = inverse(a)' g and da = -db x'; for x = inverse(a') b, da = -x db'.
void MatrixSolveGradient(GradientContext& g) {
  const bool transpose = g.node().attr<bool>("transpose_a");
  const Output db = MatrixSolve(g.input(0), g.gradient(), !transpose);
  if (g.NeedsInput(0)) {
    const Output x = g.output(0);
    g.Set(0, Neg(transpose ? BatchMatMul(x, db, {.transpose_b = true})
                           : BatchMatMul(db, x, {.transpose_b = true})));
  }
  if (g.NeedsInput(1)) g.Set(1, db);
}

// 1 below the diagonal, 1/2 on it, 0 above, for matrices of the size of `like`; with `upper` the
// transpose of that.
Output HalfTriangle(Output like, bool upper) {
  const int64_t n = like.shape().has_rank() ? like.shape().dim(-1) : kUnknownDim;
  if (n == kUnknownDim) {
    // (sign(row - column) + 1) / 2, with the positions counted by Cumsum.
    const Output ones = OnesLike(like);
    const Output down = Cumsum(ones, -2);
    const Output across = Cumsum(ones, -1);
    const Output difference = upper ? Sub(across, down) : Sub(down, across);
    return Mul(Add(Sign(difference), 1), 0.5);
  }
  Tensor mask(like.dtype(), Shape{n, n});
  for (int64_t i = 0; i < n * n; ++i) {
    const int64_t below = (i / n - i % n) * (upper ? -1 : 1);
    const double value = below > 0 ? 1 : below == 0 ? 0.5 : 0;
    if (like.dtype() == kFloat64) {
      mask.data<double>()[i] = value;
    } else {
      mask.data<float>()[i] = float(value);
    }
  }
  return Constant(like.graph(), mask);
}

// With m = L' g and tri(m) its lower triangle with the diagonal halved,
//   da = 1/2 inverse(L)' (tri(m) + tri(m)') inverse(L).
// tri(m)' is the upper half of m' = g' L, so nothing need be transposed.
void CholeskyGradient(GradientContext& g) {
  const Output l = g.output(0);
  const Output m = BatchMatMul(l, g.gradient(), {.transpose_a = true});
  const Output m_transposed = BatchMatMul(g.gradient(), l, {.transpose_a = true});
  const Output lower = Mul(m, HalfTriangle(l, false));
  const Output upper = Mul(m_transposed, HalfTriangle(l, true));
  const Output inverse = MatrixInverse(l);
  const Output left = BatchMatMul(inverse, Add(lower, upper), {.transpose_a = true});
  g.Set(0, Mul(BatchMatMul(left, inverse), 0.5));
}

}  // namespace

void RegisterLinalgGradients(GradientRegistry& registry) {
  registry.Add("MatrixInverse", MatrixInverseGradient);
  registry.Add("MatrixDeterminant", MatrixDeterminantGradient);
  registry.Add("MatrixSolve", MatrixSolveGradient);
  registry.Add("Cholesky", CholeskyGradient);
}

}  // namespace tutti
