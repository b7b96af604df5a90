#include "tutti/graph/ops/reduce.h"

#include <algorithm>

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"
#include "tutti/graph/ops/shape.h"

namespace tutti {
namespace {

// The axes of the attribute as flags by dimension. REQUIRES: input 0 has a rank.
absl::StatusOr<std::vector<bool>> ReducedAxes(InferContext& c) {
  const int rank = c.shape(0).rank();
  const auto& axes = c.attr<std::vector<int64_t>>("axes");
  std::vector<bool> reduced(rank, axes.empty());
  for (const int64_t given : axes) {
    TUTTI_ASSIGN_OR_RETURN(const int axis, c.NormalizeAxis(given, rank));
    if (reduced[axis]) return c.Error("axis {} is given twice", given);
    reduced[axis] = true;
  }
  return reduced;
}

absl::Status InferReduced(InferContext& c) {
  const Shape& x = c.shape(0);
  const bool keep = c.attr<bool>("keep_dims");
  if (!x.has_rank()) {
    const bool scalar = c.attr<std::vector<int64_t>>("axes").empty() && !keep;
    c.SetOutput(0, c.dtype(0), scalar ? Shape{} : Shape::UnknownRank());
    return absl::OkStatus();
  }
  TUTTI_ASSIGN_OR_RETURN(const std::vector<bool> reduced, ReducedAxes(c));
  std::vector<int64_t> dims;
  for (int i = 0; i < x.rank(); ++i) {
    if (!reduced[i]) dims.push_back(x.dim(i));
    if (reduced[i] && keep) dims.push_back(1);
  }
  // Without a dimension of 0 the others may be too many elements.
  std::string why;
  const auto shape = Shape::Make(dims, &why);
  if (!shape) return c.Error("{}: the result is too large: {}", c.DescribeInput(0), why);
  c.SetOutput(0, c.dtype(0), *shape);
  return absl::OkStatus();
}

absl::Status InferNumeric(InferContext& c) {
  if (c.dtype(0) == kBool)
    return c.Error("{}; expected numbers (use All, Any or Cast)", c.DescribeInput(0));
  return InferReduced(c);
}

absl::Status InferFloating(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  return InferReduced(c);
}

absl::Status InferBool(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireDType(0, kBool));
  return InferReduced(c);
}

absl::Status InferAllFinite(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  c.SetOutput(0, kBool, Shape{});
  return absl::OkStatus();
}

absl::Status InferArg(InferContext& c) {
  if (c.dtype(0) == kBool) return c.Error("{}; expected numbers", c.DescribeInput(0));
  const DType dtype = c.attr<DType>("dtype");
  if (dtype != kInt32 && dtype != kInt64)
    return c.Error("attribute dtype is {}; expected int32 or int64", NameOf(dtype));
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  if (!c.shape(0).has_rank()) {
    c.SetOutput(0, dtype, Shape::UnknownRank());
    return absl::OkStatus();
  }
  TUTTI_ASSIGN_OR_RETURN(const int axis,
                         c.NormalizeAxis(c.attr<int64_t>("axis"), c.shape(0).rank()));
  if (c.shape(0).dim(axis) == 0)
    return c.Error("{}: axis {} is empty and has no extreme element", c.DescribeInput(0), axis);
  c.SetOutput(0, dtype, c.shape(0).WithoutDim(axis));
  return absl::OkStatus();
}

absl::Status InferCumsum(InferContext& c) {
  if (c.dtype(0) == kBool) return c.Error("{}; expected numbers", c.DescribeInput(0));
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  if (c.shape(0).has_rank())
    TUTTI_RETURN_IF_ERROR(c.NormalizeAxis(c.attr<int64_t>("axis"), c.shape(0).rank()).status());
  c.SetOutput(0, c.dtype(0), c.shape(0));
  return absl::OkStatus();
}

// Does `small` broadcast to `large`? Unknown dimensions are given the benefit of the doubt.
bool Stretches(const Shape& small, const Shape& large) {
  if (!small.has_rank() || !large.has_rank()) return true;
  if (small.rank() > large.rank()) return false;
  for (int i = 1; i <= small.rank(); ++i) {
    const int64_t from = small.dim(-i);
    const int64_t to = large.dim(-i);
    if (from != 1 && from != to && from != kUnknownDim && to != kUnknownDim) return false;
  }
  return true;
}

absl::Status InferBroadcastTo(InferContext& c) {
  TUTTI_ASSIGN_OR_RETURN(const Shape shape, c.ShapeInput(1));
  if (!Stretches(c.shape(0), shape)) {
    return c.Error(
        "x is {} and cannot be broadcast to {}; counted from the last, each dimension of x must be "
        "1 or equal",
        c.shape(0).ToString(), shape.ToString());
  }
  c.SetOutput(0, c.dtype(0), shape);
  return absl::OkStatus();
}

absl::Status InferSumToShape(InferContext& c) {
  if (c.dtype(0) == kBool) return c.Error("{}; expected numbers", c.DescribeInput(0));
  TUTTI_ASSIGN_OR_RETURN(const Shape shape, c.ShapeInput(1));
  if (!Stretches(shape, c.shape(0))) {
    return c.Error(
        "x is {} and cannot be summed to {}; counted from the last, each dimension of the shape "
        "must be 1 or equal",
        c.shape(0).ToString(), shape.ToString());
  }
  c.SetOutput(0, c.dtype(0), shape);
  return absl::OkStatus();
}

absl::Status InferExclusiveProd(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireSameDType());
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  Shape shape = c.shape(0);
  if (c.num_inputs() == 2) {
    const auto merged = shape.MergedWith(c.shape(1));
    if (!merged) return c.Error("shapes differ: {}, {}", c.DescribeInput(0), c.DescribeInput(1));
    shape = *merged;
  }
  if (c.shape(0).has_rank()) TUTTI_RETURN_IF_ERROR(ReducedAxes(c).status());
  c.SetOutput(0, c.dtype(0), shape);
  return absl::OkStatus();
}

const std::vector<int64_t> kNoAxes;

OpDef Reduction(std::string_view name, absl::Status (*infer)(InferContext&), Gradient gradient) {
  return {.name = std::string(name),
          .inputs = {"x"},
          .attrs = {{"axes", kNoAxes}, {"keep_dims", false}},
          .infer = infer,
          .gradient = gradient};
}

Output Reduce(std::string_view op, const Input& x, const ReduceOptions& options,
              std::string_view name) {
  return OpBuilder(op, name)
      .In(x)
      .Attr("axes", options.axes)
      .Attr("keep_dims", options.keep_dims)
      .Build();
}

}  // namespace

void RegisterReduceOps(OpRegistry& registry) {
  registry.Add(Reduction("Sum", InferNumeric, Gradient::kDefined));
  registry.Add(Reduction("Mean", InferFloating, Gradient::kDefined));
  registry.Add(Reduction("Prod", InferNumeric, Gradient::kDefined));
  registry.Add(Reduction("Max", InferNumeric, Gradient::kDefined));
  registry.Add(Reduction("Min", InferNumeric, Gradient::kDefined));
  registry.Add(Reduction("All", InferBool, Gradient::kZero));
  registry.Add(Reduction("Any", InferBool, Gradient::kZero));
  registry.Add(
      {.name = "AllFinite", .inputs = {"x"}, .infer = InferAllFinite, .gradient = Gradient::kZero});
  registry.Add(Reduction("LogSumExp", InferFloating, Gradient::kDefined));
  for (const char* name : {"ArgMax", "ArgMin"}) {
    registry.Add({.name = name,
                  .inputs = {"x"},
                  .attrs = {{"axis", AttrType::kInt}, {"dtype", kInt64}},
                  .infer = InferArg,
                  .gradient = Gradient::kZero});
  }
  registry.Add({.name = "Cumsum",
                .inputs = {"x"},
                .attrs = {{"axis", AttrType::kInt}, {"exclusive", false}, {"reverse", false}},
                .infer = InferCumsum,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "BroadcastTo",
                .inputs = {"x", "shape"},
                .infer = InferBroadcastTo,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "SumToShape",
                .inputs = {"x", "shape"},
                .infer = InferSumToShape,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "ExclusiveProd",
                .inputs = {"x"},
                .attrs = {{"axes", kNoAxes}},
                .infer = InferExclusiveProd,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "ExclusiveProdGrad",
                .inputs = {"x", "gradient"},
                .attrs = {{"axes", kNoAxes}},
                .infer = InferExclusiveProd,
                .gradient = Gradient::kNone});
}

Output Sum(Input x, const ReduceOptions& options, std::string_view name) {
  return Reduce("Sum", x, options, name);
}
Output Mean(Input x, const ReduceOptions& options, std::string_view name) {
  return Reduce("Mean", x, options, name);
}
Output Prod(Input x, const ReduceOptions& options, std::string_view name) {
  return Reduce("Prod", x, options, name);
}
Output Max(Input x, const ReduceOptions& options, std::string_view name) {
  return Reduce("Max", x, options, name);
}
Output Min(Input x, const ReduceOptions& options, std::string_view name) {
  return Reduce("Min", x, options, name);
}
Output All(Input x, const ReduceOptions& options, std::string_view name) {
  return Reduce("All", x, options, name);
}
Output Any(Input x, const ReduceOptions& options, std::string_view name) {
  return Reduce("Any", x, options, name);
}
Output AllFinite(Input x, std::string_view name) {
  return OpBuilder("AllFinite", name).In(x).Build();
}
Output LogSumExp(Input x, const ReduceOptions& options, std::string_view name) {
  return Reduce("LogSumExp", x, options, name);
}

Output ArgMax(Input x, int64_t axis, DType dtype, std::string_view name) {
  return OpBuilder("ArgMax", name).In(x).Attr("axis", axis).Attr("dtype", dtype).Build();
}
Output ArgMin(Input x, int64_t axis, DType dtype, std::string_view name) {
  return OpBuilder("ArgMin", name).In(x).Attr("axis", axis).Attr("dtype", dtype).Build();
}

Output Cumsum(Input x, int64_t axis, const CumsumOptions& options, std::string_view name) {
  return OpBuilder("Cumsum", name)
      .In(x)
      .Attr("axis", axis)
      .Attr("exclusive", options.exclusive)
      .Attr("reverse", options.reverse)
      .Build();
}

Output BroadcastTo(Input x, Input shape, std::string_view name) {
  return OpBuilder("BroadcastTo", name).In(x).In(shape).Build();
}
Output SumToShape(Input x, Input shape, std::string_view name) {
  return OpBuilder("SumToShape", name).In(x).In(shape).Build();
}

namespace {

// The shape of `like` as an input: a constant where the graph knows it.
Input ShapeInputOf(Output like) {
  if (like.shape().IsFullyKnown()) {
    const auto dims = like.shape().dims();
    return Tensor::Of<int64_t>(Shape{int64_t(dims.size())}, dims);
  }
  return ShapeOf(like);
}

bool KnownEqual(const Shape& a, const Shape& b) { return a.IsFullyKnown() && a == b; }

}  // namespace

Output BroadcastLike(Output x, Output like) {
  if (KnownEqual(x.shape(), like.shape())) return x;
  return BroadcastTo(x, ShapeInputOf(like));
}
Output SumToShapeOf(Output x, Output like) {
  if (KnownEqual(x.shape(), like.shape())) return x;
  return SumToShape(x, ShapeInputOf(like));
}

Output ExclusiveProd(Input x, const std::vector<int64_t>& axes, std::string_view name) {
  return OpBuilder("ExclusiveProd", name).In(x).Attr("axes", axes).Build();
}

}  // namespace tutti
