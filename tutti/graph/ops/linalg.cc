#include "tutti/graph/ops/linalg.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

absl::Status RequireSquare(InferContext& c) {
  if (c.dtype(0) != kFloat32 && c.dtype(0) != kFloat64)
    return c.Error("{}; expected float32 or float64", c.DescribeInput(0));
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 2));
  const Shape& a = c.shape(0);
  if (!a.has_rank()) return absl::OkStatus();
  const int64_t rows = a.dim(-2);
  const int64_t columns = a.dim(-1);
  if (rows != columns && rows != kUnknownDim && columns != kUnknownDim)
    return c.Error("{}; expected square matrices: the last two dimensions must be equal",
                   c.DescribeInput(0));
  return absl::OkStatus();
}

absl::Status InferSquare(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(RequireSquare(c));
  Shape shape = c.shape(0);
  if (shape.has_rank()) {
    const int64_t n = shape.dim(-1) != kUnknownDim ? shape.dim(-1) : shape.dim(-2);
    std::string why;
    const auto made = Shape::Make(shape.WithDim(-1, n).WithDim(-2, n).dims(), &why);
    if (!made) return c.Error("{}: {}", c.DescribeInput(0), why);
    shape = *made;
  }
  c.SetOutput(0, c.dtype(0), shape);
  return absl::OkStatus();
}

absl::Status InferDeterminant(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(RequireSquare(c));
  const Shape& a = c.shape(0);
  if (!a.has_rank()) {
    c.SetOutput(0, c.dtype(0), a);
    return absl::OkStatus();
  }
  std::string why;
  const auto batch = Shape::Make(a.dims().first(size_t(a.rank()) - 2), &why);
  if (!batch) return c.Error("{}: the result is too large: {}", c.DescribeInput(0), why);
  c.SetOutput(0, c.dtype(0), *batch);
  return absl::OkStatus();
}

absl::Status InferSolve(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireSameDType());
  TUTTI_RETURN_IF_ERROR(RequireSquare(c));
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(1, 2));
  const Shape& a = c.shape(0);
  const Shape& b = c.shape(1);
  if (!a.has_rank() || !b.has_rank()) {
    c.SetOutput(0, c.dtype(0), b);
    return absl::OkStatus();
  }
  // All dimensions of b but the last are those of a.
  const auto merged = a.WithDim(-1, kUnknownDim).MergedWith(b.WithDim(-1, kUnknownDim));
  if (!merged) {
    return c.Error("{}, {}; expected b to have a's dimensions except for the last",
                   c.DescribeInput(0), c.DescribeInput(1));
  }
  std::string why;
  const auto made = Shape::Make(merged->WithDim(-1, b.dim(-1)).dims(), &why);
  if (!made) return c.Error("the result is too large: {}", why);
  c.SetOutput(0, c.dtype(0), *made);
  return absl::OkStatus();
}

}  // namespace

void RegisterLinalgOps(OpRegistry& registry) {
  registry.Add({.name = "MatrixInverse",
                .inputs = {"a"},
                .attrs = {{"transpose", false}},
                .infer = InferSquare,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "MatrixDeterminant",
                .inputs = {"a"},
                .infer = InferDeterminant,
                .gradient = Gradient::kDefined});
  registry.Add(
      {.name = "Cholesky", .inputs = {"a"}, .infer = InferSquare, .gradient = Gradient::kDefined});
  registry.Add({.name = "MatrixSolve",
                .inputs = {"a", "b"},
                .attrs = {{"transpose_a", false}},
                .infer = InferSolve,
                .gradient = Gradient::kDefined});
}

Output MatrixInverse(Input a, bool transpose, std::string_view name) {
  return OpBuilder("MatrixInverse", name).In(a).Attr("transpose", transpose).Build();
}
Output MatrixDeterminant(Input a, std::string_view name) {
  return OpBuilder("MatrixDeterminant", name).In(a).Build();
}
Output Cholesky(Input a, std::string_view name) {
  return OpBuilder("Cholesky", name).In(a).Build();
}
Output MatrixSolve(Input a, Input b, bool transpose_a, std::string_view name) {
  return OpBuilder("MatrixSolve", name).In(a).In(b).Attr("transpose_a", transpose_a).Build();
}

}  // namespace tutti
