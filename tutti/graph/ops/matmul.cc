#include "tutti/graph/ops/matmul.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/fused_matrix.h"
#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

// The last two dimensions of both inputs, transposed as asked: [m, k] and [k, n] give m and n.
absl::Status InferProduct(InferContext& c, int64_t* m, int64_t* n) {
  const Shape& a = c.shape(0);
  const Shape& b = c.shape(1);
  const bool ta = c.attr<bool>("transpose_a");
  const bool tb = c.attr<bool>("transpose_b");
  const int rank_a = a.rank();
  const int rank_b = b.rank();
  const int inner_a = ta ? rank_a - 2 : rank_a - 1;
  const int inner_b = tb ? rank_b - 1 : rank_b - 2;
  const int64_t ka = a.dim(inner_a);
  const int64_t kb = b.dim(inner_b);
  if (ka != kb && ka != kUnknownDim && kb != kUnknownDim) {
    return c.Error(
        "inner dimensions differ: a is {}, b is {}; a's dimension {} must equal b's dimension {}",
        a.ToString(), b.ToString(), inner_a, inner_b);
  }
  *m = a.dim(ta ? rank_a - 1 : rank_a - 2);
  *n = b.dim(tb ? rank_b - 2 : rank_b - 1);
  return absl::OkStatus();
}

absl::Status InferMatMul(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireSameDType());
  TUTTI_RETURN_IF_ERROR(c.RequireRank(0, 2));
  TUTTI_RETURN_IF_ERROR(c.RequireRank(1, 2));
  if (!c.shape(0).has_rank() || !c.shape(1).has_rank()) {
    c.SetOutput(0, c.dtype(0), Shape::UnknownOfRank(2));
    return absl::OkStatus();
  }
  int64_t m = 0, n = 0;
  TUTTI_RETURN_IF_ERROR(InferProduct(c, &m, &n));
  c.SetOutput(0, c.dtype(0), Shape{m, n});
  return absl::OkStatus();
}

absl::Status InferBatchMatMul(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireSameDType());
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 2));
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(1, 2));
  const Shape& a = c.shape(0);
  const Shape& b = c.shape(1);
  if (!a.has_rank() || !b.has_rank()) {
    c.SetOutput(0, c.dtype(0), Shape::UnknownRank());
    return absl::OkStatus();
  }
  const auto batch =
      Shape(a.dims().first(a.rank() - 2)).MergedWith(Shape(b.dims().first(b.rank() - 2)));
  if (!batch) {
    return c.Error("leading dimensions differ: a is {}, b is {}", a.ToString(), b.ToString());
  }
  int64_t m = 0, n = 0;
  TUTTI_RETURN_IF_ERROR(InferProduct(c, &m, &n));
  c.SetOutput(0, c.dtype(0), batch->WithInserted(-1, m).WithInserted(-1, n));
  return absl::OkStatus();
}

}  // namespace

void RegisterMatMulOps(OpRegistry& registry) {
  registry.Add({.name = "MatMul",
                .inputs = {"a", "b"},
                .attrs = {{"transpose_a", false}, {"transpose_b", false}},
                .infer = InferMatMul,
                .gradient = Gradient::kDefined});
  RegisterFusedMatrixOps(registry);
  registry.Add({.name = "BatchMatMul",
                .inputs = {"a", "b"},
                .attrs = {{"transpose_a", false}, {"transpose_b", false}},
                .infer = InferBatchMatMul,
                .gradient = Gradient::kDefined});
}

Output MatMul(Input a, Input b, const MatMulOptions& options, std::string_view name) {
  return OpBuilder("MatMul", name)
      .In(a)
      .In(b)
      .Attr("transpose_a", options.transpose_a)
      .Attr("transpose_b", options.transpose_b)
      .Build();
}

Output BatchMatMul(Input a, Input b, const MatMulOptions& options, std::string_view name) {
  return OpBuilder("BatchMatMul", name)
      .In(a)
      .In(b)
      .Attr("transpose_a", options.transpose_a)
      .Attr("transpose_b", options.transpose_b)
      .Build();
}

}  // namespace tutti
