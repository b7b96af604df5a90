#include "tutti/graph/ops/norm.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

// Input i must be a vector of as many values as the last dimension of x (input `x`) has; *channels
// is that number as far as it is known.
absl::Status RequireChannels(InferContext& c, int i, int x, int64_t* channels) {
  TUTTI_RETURN_IF_ERROR(c.RequireRank(i, 1));
  if (!c.shape(i).has_rank()) return absl::OkStatus();
  const int64_t given = c.shape(i).dim(0);
  if (*channels == kUnknownDim) *channels = given;
  if (given != *channels && given != kUnknownDim) {
    return c.Error("{}, {}; expected [{}], the last dimension of {}", c.DescribeInput(x),
                   c.DescribeInput(i), *channels, c.def().InputName(x));
  }
  return absl::OkStatus();
}

absl::Status RequireEpsilon(InferContext& c) {
  const double epsilon = c.attr<double>("epsilon");
  if (epsilon > 0) return absl::OkStatus();
  return c.Error("epsilon is {}; expected a positive number", epsilon);
}

// What all forms have in common: x with vectors of its last dimension as all other inputs from
// `first` on. Gives the channels and x's shape with what they tell of it.
absl::Status InferVectors(InferContext& c, int x, int first, int last, int64_t* channels,
                          Shape* shape) {
  TUTTI_RETURN_IF_ERROR(c.RequireSameDType());
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(x));
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(x, 1));
  *channels = c.shape(x).has_rank() ? c.shape(x).dim(-1) : kUnknownDim;
  for (int i = first; i <= last; ++i) TUTTI_RETURN_IF_ERROR(RequireChannels(c, i, x, channels));
  *shape = c.shape(x);
  if (!shape->has_rank()) return absl::OkStatus();
  std::string why;
  const auto made = Shape::Make(shape->WithDim(-1, *channels).dims(), &why);
  if (!made) return c.Error("{}, {}: {}", c.DescribeInput(x), c.DescribeInput(first), why);
  *shape = *made;
  return absl::OkStatus();
}

// One value for each row of x.
absl::StatusOr<Shape> RowsOf(InferContext& c, int x) {
  const Shape& shape = c.shape(x);
  if (!shape.has_rank()) return Shape::UnknownRank();
  std::string why;
  const auto rows = Shape::Make(shape.dims().first(size_t(shape.rank()) - 1), &why);
  if (!rows) return c.Error("{}: too many rows: {}", c.DescribeInput(x), why);
  return *rows;
}

absl::Status InferLayerNorm(InferContext& c) {
  int64_t channels = 0;
  Shape shape;
  TUTTI_RETURN_IF_ERROR(InferVectors(c, 0, 1, 2, &channels, &shape));
  TUTTI_RETURN_IF_ERROR(RequireEpsilon(c));
  TUTTI_ASSIGN_OR_RETURN(const Shape rows, RowsOf(c, 0));
  c.SetOutput(0, c.dtype(0), shape);
  c.SetOutput(1, c.dtype(0), rows);
  c.SetOutput(2, c.dtype(0), rows);
  return absl::OkStatus();
}

absl::Status InferBatchNorm(InferContext& c) {
  int64_t channels = 0;
  Shape shape;
  TUTTI_RETURN_IF_ERROR(InferVectors(c, 0, 1, 2, &channels, &shape));
  TUTTI_RETURN_IF_ERROR(RequireEpsilon(c));
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 2));
  c.SetOutput(0, c.dtype(0), shape);
  for (int i = 1; i < 4; ++i) c.SetOutput(i, c.dtype(0), Shape{channels});
  return absl::OkStatus();
}

absl::Status InferBatchNormInference(InferContext& c) {
  int64_t channels = 0;
  Shape shape;
  TUTTI_RETURN_IF_ERROR(InferVectors(c, 0, 1, 4, &channels, &shape));
  TUTTI_RETURN_IF_ERROR(RequireEpsilon(c));
  c.SetOutput(0, c.dtype(0), shape);
  return absl::OkStatus();
}

// Inputs dy, x, scale, mean, rstd.
absl::Status InferNormGrad(InferContext& c, bool by_row) {
  int64_t channels = 0;
  Shape shape;
  TUTTI_RETURN_IF_ERROR(InferVectors(c, 1, 2, by_row ? 2 : 4, &channels, &shape));
  const auto merged = shape.MergedWith(c.shape(0));
  if (!merged) return c.Error("shapes differ: {}, {}", c.DescribeInput(0), c.DescribeInput(1));
  if (by_row) {
    TUTTI_ASSIGN_OR_RETURN(const Shape rows, RowsOf(c, 1));
    for (const int i : {3, 4}) {
      if (!rows.CompatibleWith(c.shape(i)))
        return c.Error("{}, {}; expected {}", c.DescribeInput(1), c.DescribeInput(i),
                       rows.ToString());
    }
  }
  c.SetOutput(0, c.dtype(0), *merged);
  c.SetOutput(1, c.dtype(0), Shape{channels});
  c.SetOutput(2, c.dtype(0), Shape{channels});
  return absl::OkStatus();
}
absl::Status InferLayerNormGrad(InferContext& c) { return InferNormGrad(c, true); }
absl::Status InferBatchNormGrad(InferContext& c) { return InferNormGrad(c, false); }

NormGradients BuildGrad(std::string_view op, const Input& dy, const Input& x, const Input& scale,
                        const Input& mean, const Input& rstd, std::string_view name) {
  const Node* node = OpBuilder(op, name).In(dy).In(x).In(scale).In(mean).In(rstd).BuildNode();
  return {node->output(0), node->output(1), node->output(2)};
}

}  // namespace

void RegisterNormOps(OpRegistry& registry) {
  const AttrDef epsilon("epsilon", NormOptions().epsilon);
  registry.Add({.name = "LayerNorm",
                .inputs = {"x", "scale", "offset"},
                .attrs = {epsilon},
                .infer = InferLayerNorm,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "LayerNormGrad",
                .inputs = {"dy", "x", "scale", "mean", "rstd"},
                .infer = InferLayerNormGrad,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "BatchNorm",
                .inputs = {"x", "scale", "offset"},
                .attrs = {epsilon},
                .infer = InferBatchNorm,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "BatchNormGrad",
                .inputs = {"dy", "x", "scale", "mean", "rstd"},
                .infer = InferBatchNormGrad,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "BatchNormInference",
                .inputs = {"x", "scale", "offset", "mean", "variance"},
                .attrs = {epsilon},
                .infer = InferBatchNormInference,
                .gradient = Gradient::kDefined});
}

LayerNormResult LayerNorm(Input x, Input scale, Input offset, const NormOptions& options,
                          std::string_view name) {
  const Node* node = OpBuilder("LayerNorm", name)
                         .In(x)
                         .In(scale)
                         .In(offset)
                         .Attr("epsilon", options.epsilon)
                         .BuildNode();
  return {node->output(0), node->output(1), node->output(2)};
}

BatchNormResult BatchNorm(Input x, Input scale, Input offset, const NormOptions& options,
                          std::string_view name) {
  const Node* node = OpBuilder("BatchNorm", name)
                         .In(x)
                         .In(scale)
                         .In(offset)
                         .Attr("epsilon", options.epsilon)
                         .BuildNode();
  return {node->output(0), node->output(1), node->output(2), node->output(3)};
}

Output BatchNormInference(Input x, Input scale, Input offset, Input mean, Input variance,
                          const NormOptions& options, std::string_view name) {
  return OpBuilder("BatchNormInference", name)
      .In(x)
      .In(scale)
      .In(offset)
      .In(mean)
      .In(variance)
      .Attr("epsilon", options.epsilon)
      .Build();
}

NormGradients LayerNormGrad(Input dy, Input x, Input scale, Input mean, Input rstd,
                            std::string_view name) {
  return BuildGrad("LayerNormGrad", dy, x, scale, mean, rstd, name);
}
NormGradients BatchNormGrad(Input dy, Input x, Input scale, Input mean, Input rstd,
                            std::string_view name) {
  return BuildGrad("BatchNormGrad", dy, x, scale, mean, rstd, name);
}

}  // namespace tutti
