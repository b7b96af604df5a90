#include "tutti/autodiff/register.h"
#include "tutti/graph/ops/matmul.h"

namespace tutti {
namespace {

// With c = op(a) op(b) and g the gradient of c, d(op(a)) = g op(b)^T and d(op(b)) = op(a)^T g. A
// transposed operand wants the transpose of that, which swaps the factors.
template <typename Multiply>
void ProductGradient(GradientContext& ctx, Multiply multiply) {
  const bool ta = ctx.node().attr<bool>("transpose_a");
  const bool tb = ctx.node().attr<bool>("transpose_b");
  const Output a = ctx.input(0);
  const Output b = ctx.input(1);
  const Output g = ctx.gradient();
  const auto product = [&](Output x, Output y, bool tx, bool ty) {
    return multiply(x, y, MatMulOptions{.transpose_a = tx, .transpose_b = ty});
  };
  if (ctx.NeedsInput(0)) ctx.Set(0, ta ? product(b, g, tb, true) : product(g, b, false, !tb));
  if (ctx.NeedsInput(1)) ctx.Set(1, tb ? product(g, a, true, ta) : product(a, g, !ta, false));
}

void MatMulGradient(GradientContext& ctx) {
  ProductGradient(
      ctx, [](Output x, Output y, const MatMulOptions& options) { return MatMul(x, y, options); });
}

void BatchMatMulGradient(GradientContext& ctx) {
  ProductGradient(ctx, [](Output x, Output y, const MatMulOptions& options) {
    return BatchMatMul(x, y, options);
  });
}

}  // namespace

void RegisterMatMulGradients(GradientRegistry& registry) {
  registry.Add("MatMul", MatMulGradient);
  registry.Add("BatchMatMul", BatchMatMulGradient);
}

}  // namespace tutti
