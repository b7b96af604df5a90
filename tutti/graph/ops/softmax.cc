#include "tutti/graph/ops/softmax.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

// Sets output `i` to what is known of two inputs that must have one shape.
absl::Status InferSameShape(InferContext& c, int output) {
  TUTTI_RETURN_IF_ERROR(c.RequireSameDType());
  const auto shape = c.shape(0).MergedWith(c.shape(1));
  if (!shape) return c.Error("shapes differ: {}, {}", c.DescribeInput(0), c.DescribeInput(1));
  c.SetOutput(output, c.dtype(0), *shape);
  return absl::OkStatus();
}

absl::Status InferSoftmax(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  if (c.num_inputs() == 2) return InferSameShape(c, 0);
  c.SetOutput(0, c.dtype(0), c.shape(0));
  return absl::OkStatus();
}

// The shape of one value for each row of `x`. Without classes the rows alone may be too many.
absl::StatusOr<Shape> RowsOf(InferContext& c, const Shape& x) {
  if (!x.has_rank()) return x;
  std::string why;
  const auto rows = Shape::Make(x.dims().first(size_t(x.rank()) - 1), &why);
  if (!rows) return c.Error("{}: the result is too large: {}", c.DescribeInput(0), why);
  return *rows;
}

absl::Status InferSoftmaxCrossEntropy(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(1, 1));
  TUTTI_RETURN_IF_ERROR(InferSameShape(c, 1));
  const auto merged = c.shape(0).MergedWith(c.shape(1));
  TUTTI_ASSIGN_OR_RETURN(const Shape rows, RowsOf(c, *merged));
  c.SetOutput(0, c.dtype(0), rows);
  return absl::OkStatus();
}

absl::Status InferSparseSoftmaxCrossEntropy(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  TUTTI_RETURN_IF_ERROR(c.RequireIndex(1));
  const Shape& logits = c.shape(0);
  if (!logits.has_rank()) {
    c.SetOutput(0, c.dtype(0), c.shape(1));
    c.SetOutput(1, c.dtype(0), logits);
    return absl::OkStatus();
  }
  TUTTI_ASSIGN_OR_RETURN(const Shape wanted, RowsOf(c, logits));
  const auto rows = wanted.MergedWith(c.shape(1));
  if (!rows) {
    return c.Error("labels do not fit the rows of logits: {}, {}; expected labels of shape {}",
                   c.DescribeInput(0), c.DescribeInput(1), wanted.ToString());
  }
  c.SetOutput(0, c.dtype(0), *rows);
  c.SetOutput(1, c.dtype(0), rows->WithInserted(rows->rank(), logits.dim(-1)));
  return absl::OkStatus();
}

absl::Status InferSigmoidCrossEntropy(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  return InferSameShape(c, 0);
}

absl::Status InferL2Loss(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  c.SetOutput(0, c.dtype(0), Shape{});
  return absl::OkStatus();
}

absl::Status InferInTopK(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  TUTTI_RETURN_IF_ERROR(c.RequireRank(0, 2));
  TUTTI_RETURN_IF_ERROR(c.RequireIndex(1));
  TUTTI_RETURN_IF_ERROR(c.RequireRank(1, 1));
  if (c.attr<int64_t>("k") < 0) return c.Error("k is {}; expected 0 or more", c.attr<int64_t>("k"));
  const Shape rows = c.shape(0).has_rank() ? Shape{c.shape(0).dim(0)} : Shape::UnknownOfRank(1);
  const auto merged = rows.MergedWith(c.shape(1));
  if (!merged) {
    return c.Error("{}, {}; expected as many targets as rows of predictions", c.DescribeInput(0),
                   c.DescribeInput(1));
  }
  c.SetOutput(0, kBool, *merged);
  return absl::OkStatus();
}

CrossEntropy BuildCrossEntropy(std::string_view op, const Input& logits, const Input& labels,
                               std::string_view name) {
  const Node* node = OpBuilder(op, name).In(logits).In(labels).BuildNode();
  return {node->output(0), node->output(1)};
}

}  // namespace

void RegisterSoftmaxOps(OpRegistry& registry) {
  for (const char* name : {"Softmax", "LogSoftmax"}) {
    registry.Add({.name = name,
                  .inputs = {"logits"},
                  .infer = InferSoftmax,
                  .gradient = Gradient::kDefined});
  }
  for (const char* name : {"SoftmaxGrad", "LogSoftmaxGrad"}) {
    registry.Add({.name = name,
                  .inputs = {"y", "dy"},
                  .infer = InferSoftmax,
                  .gradient = Gradient::kDefined});
  }
  registry.Add({.name = "SoftmaxCrossEntropy",
                .inputs = {"logits", "labels"},
                .infer = InferSoftmaxCrossEntropy,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "SparseSoftmaxCrossEntropy",
                .inputs = {"logits", "labels"},
                .infer = InferSparseSoftmaxCrossEntropy,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "SigmoidCrossEntropy",
                .inputs = {"logits", "labels"},
                .infer = InferSigmoidCrossEntropy,
                .gradient = Gradient::kDefined});
  registry.Add(
      {.name = "L2Loss", .inputs = {"x"}, .infer = InferL2Loss, .gradient = Gradient::kDefined});
  registry.Add({.name = "InTopK",
                .inputs = {"predictions", "targets"},
                .attrs = {{"k", AttrType::kInt}},
                .infer = InferInTopK,
                .gradient = Gradient::kZero});
}

Output Softmax(Input logits, std::string_view name) {
  return OpBuilder("Softmax", name).In(logits).Build();
}
Output LogSoftmax(Input logits, std::string_view name) {
  return OpBuilder("LogSoftmax", name).In(logits).Build();
}
Output SoftmaxGrad(Input y, Input dy, std::string_view name) {
  return OpBuilder("SoftmaxGrad", name).In(y).In(dy).Build();
}
Output LogSoftmaxGrad(Input y, Input dy, std::string_view name) {
  return OpBuilder("LogSoftmaxGrad", name).In(y).In(dy).Build();
}

CrossEntropy SoftmaxCrossEntropy(Input logits, Input labels, std::string_view name) {
  return BuildCrossEntropy("SoftmaxCrossEntropy", logits, labels, name);
}
CrossEntropy SparseSoftmaxCrossEntropy(Input logits, Input labels, std::string_view name) {
  return BuildCrossEntropy("SparseSoftmaxCrossEntropy", logits, labels, name);
}

Output SigmoidCrossEntropy(Input logits, Input labels, std::string_view name) {
  return OpBuilder("SigmoidCrossEntropy", name).In(logits).In(labels).Build();
}
Output L2Loss(Input x, std::string_view name) { return OpBuilder("L2Loss", name).In(x).Build(); }
Output InTopK(Input predictions, Input targets, int64_t k, std::string_view name) {
  return OpBuilder("InTopK", name).In(predictions).In(targets).Attr("k", k).Build();
}

}  // namespace tutti
