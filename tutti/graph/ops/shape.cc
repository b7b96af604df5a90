#include "tutti/graph/ops/shape.h"

#include <algorithm>

#include "tutti/base/checked.h"
#include "tutti/graph/build.h"
#include "tutti/graph/ops/range_length.h"
#include "tutti/graph/ops/register.h"
#include "tutti/tensor/product.h"

namespace tutti {
namespace {

absl::Status InferSame(InferContext& c) {
  c.SetOutput(0, c.dtype(0), c.shape(0));
  return absl::OkStatus();
}

absl::StatusOr<DType> IndexDType(const InferContext& c) {
  const DType dtype = c.attr<DType>("dtype");
  if (dtype == kInt32 || dtype == kInt64) return dtype;
  return c.Error("attribute \"dtype\" is {}; expected int32 or int64", NameOf(dtype));
}

absl::Status InferShapeOf(InferContext& c) {
  TUTTI_ASSIGN_OR_RETURN(const DType dtype, IndexDType(c));
  c.SetOutput(0, dtype, c.shape(0).has_rank() ? Shape{c.shape(0).rank()} : Shape{kUnknownDim});
  return absl::OkStatus();
}

absl::Status InferIndexScalar(InferContext& c) {
  TUTTI_ASSIGN_OR_RETURN(const DType dtype, IndexDType(c));
  c.SetOutput(0, dtype, Shape{});
  return absl::OkStatus();
}

// What is left of `elements` for the one dimension of `wanted` that is not known, or -1.
absl::StatusOr<Shape> FillInOneDimension(const InferContext& c, const Shape& x, Shape wanted,
                                         bool minus_one_is_meant) {
  int unknown = -1;
  int unknowns = 0;
  std::vector<int64_t> known;
  for (int i = 0; i < wanted.rank(); ++i) {
    if (wanted.dim(i) == kUnknownDim) {
      unknown = i;
      ++unknowns;
    } else {
      known.push_back(wanted.dim(i));
    }
  }
  const int64_t rest = ProductOf(known);
  if (unknowns > 1 && minus_one_is_meant) {
    return c.Error("shape has {} dimensions of -1; at most one may be left open", unknowns);
  }
  const int64_t elements = x.elements();
  if (elements < 0 || unknowns > 1) return wanted;
  if (unknowns == 0) {
    if (rest == elements) return wanted;
    return c.Error("x is {} with {} elements, shape {} has {}", x.ToString(), elements,
                   wanted.ToString(), rest);
  }
  if (rest == 0) {
    if (!minus_one_is_meant) return wanted;
    return c.Error("the -1 in shape cannot be told from x, {}, because another dimension is 0",
                   x.ToString());
  }
  if (elements % rest != 0) {
    return c.Error("x is {} with {} elements, which do not divide into shape {}", x.ToString(),
                   elements, wanted.ToString());
  }
  return wanted.WithDim(unknown, elements / rest);
}

absl::Status InferReshape(InferContext& c) {
  TUTTI_ASSIGN_OR_RETURN(Shape wanted, c.ShapeInput(1));
  if (wanted.has_rank()) {
    const bool is_constant = c.spec().inputs[1].node->op() == "Constant";
    TUTTI_ASSIGN_OR_RETURN(wanted, FillInOneDimension(c, c.shape(0), wanted, is_constant));
  }
  c.SetOutput(0, c.dtype(0), wanted);
  return absl::OkStatus();
}

absl::Status InferExpandDims(InferContext& c) {
  const Shape& x = c.shape(0);
  if (!x.has_rank()) {
    c.SetOutput(0, c.dtype(0), x);
    return absl::OkStatus();
  }
  if (x.rank() == kMaxRank) {
    return c.Error("{}; a tensor has at most {} dimensions", c.DescribeInput(0), kMaxRank);
  }
  TUTTI_ASSIGN_OR_RETURN(const int axis, c.NormalizeAxis(c.attr<int64_t>("axis"), x.rank() + 1));
  c.SetOutput(0, c.dtype(0), x.WithInserted(axis, 1));
  return absl::OkStatus();
}

absl::Status InferSqueeze(InferContext& c) {
  const Shape& x = c.shape(0);
  const auto& axes = c.attr<std::vector<int64_t>>("axes");
  // With unknown dimensions and no axes, even the rank of the result is open.
  if (!x.has_rank() || (axes.empty() && !x.IsFullyKnown())) {
    c.SetOutput(0, c.dtype(0), Shape::UnknownRank());
    return absl::OkStatus();
  }
  std::vector<bool> remove(x.rank(), false);
  for (const int64_t given : axes) {
    TUTTI_ASSIGN_OR_RETURN(const int axis, c.NormalizeAxis(given, x.rank()));
    if (x.dim(axis) != 1 && x.dim(axis) != kUnknownDim) {
      return c.Error("x is {}; its dimension {} is {}, and only one of 1 can be removed",
                     x.ToString(), axis, x.dim(axis));
    }
    remove[axis] = true;
  }
  Shape result = x;
  for (int i = x.rank() - 1; i >= 0; --i) {
    if (remove[i] || (axes.empty() && x.dim(i) == 1)) result = result.WithoutDim(i);
  }
  c.SetOutput(0, c.dtype(0), result);
  return absl::OkStatus();
}

absl::Status InferFill(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireRank(1, 0));
  if (const auto dims = c.ConstantInput(0)) {
    TUTTI_RETURN_IF_ERROR(c.RequireIndex(0));
    for (int64_t i = 0; i < dims->elements(); ++i) {
      const int64_t dim =
          dims->dtype() == kInt32 ? dims->data<int32_t>()[i] : dims->data<int64_t>()[i];
      if (dim < 0) return c.Error("dims[{}] is {}; expected 0 or more", i, dim);
    }
  }
  TUTTI_ASSIGN_OR_RETURN(const Shape shape, c.ShapeInput(0));
  c.SetOutput(0, c.dtype(1), shape);
  return absl::OkStatus();
}

absl::Status InferRange(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireSameDType());
  const DType dtype = c.dtype(0);
  if (dtype != kInt32 && dtype != kInt64 && dtype != kFloat32 && dtype != kFloat64) {
    return c.Error("{}; expected int32, int64, float32 or float64", c.DescribeInput(0));
  }
  for (int i = 0; i < 3; ++i) TUTTI_RETURN_IF_ERROR(c.RequireRank(i, 0));
  const auto start = c.ConstantInput(0);
  const auto limit = c.ConstantInput(1);
  const auto delta = c.ConstantInput(2);
  int64_t length = kUnknownDim;
  if (start && limit && delta) {
    TUTTI_ASSIGN_OR_RETURN(length, RangeLength(*start, *limit, *delta));
  }
  c.SetOutput(0, dtype, Shape{length});
  return absl::OkStatus();
}

Tensor DimsTensor(const Shape& shape) {
  return Tensor::Of<int64_t>(Shape{shape.rank()}, shape.dims());
}

}  // namespace

void RegisterShapeOps(OpRegistry& registry) {
  registry.Add({.name = "Identity",
                .inputs = {"x"},
                .infer = InferSame,
                .gradient = Gradient::kDefined,
                .view = true});
  registry.Add({.name = "StopGradient",
                .inputs = {"x"},
                .infer = InferSame,
                .gradient = Gradient::kZero,
                .view = true});
  registry.Add({.name = "Shape",
                .inputs = {"x"},
                .attrs = {{"dtype", kInt64}},
                .infer = InferShapeOf,
                .gradient = Gradient::kZero});
  registry.Add({.name = "Rank",
                .inputs = {"x"},
                .attrs = {{"dtype", kInt64}},
                .infer = InferIndexScalar,
                .gradient = Gradient::kZero});
  registry.Add({.name = "Size",
                .inputs = {"x"},
                .attrs = {{"dtype", kInt64}},
                .infer = InferIndexScalar,
                .gradient = Gradient::kZero});
  registry.Add({.name = "Reshape",
                .inputs = {"x", "shape"},
                .infer = InferReshape,
                .gradient = Gradient::kDefined,
                .view = true});
  registry.Add({.name = "ExpandDims",
                .inputs = {"x"},
                .attrs = {{"axis", AttrType::kInt}},
                .infer = InferExpandDims,
                .gradient = Gradient::kDefined,
                .view = true});
  registry.Add({.name = "Squeeze",
                .inputs = {"x"},
                .attrs = {{"axes", std::vector<int64_t>{}}},
                .infer = InferSqueeze,
                .gradient = Gradient::kDefined,
                .view = true});
  registry.Add({.name = "Fill",
                .inputs = {"dims", "value"},
                .infer = InferFill,
                .gradient = Gradient::kDefined});
  registry.Add(
      {.name = "ZerosLike", .inputs = {"x"}, .infer = InferSame, .gradient = Gradient::kZero});
  registry.Add(
      {.name = "OnesLike", .inputs = {"x"}, .infer = InferSame, .gradient = Gradient::kZero});
  registry.Add({.name = "Range",
                .inputs = {"start", "limit", "delta"},
                .infer = InferRange,
                .gradient = Gradient::kNone});
}

Output Identity(Input x, std::string_view name) {
  return OpBuilder("Identity", name).In(x).Build();
}

Output StopGradient(Input x, std::string_view name) {
  return OpBuilder("StopGradient", name).In(x).Build();
}

Output ShapeOf(Input x, DType dtype, std::string_view name) {
  return OpBuilder("Shape", name).In(x).Attr("dtype", dtype).Build();
}

Output Rank(Input x, DType dtype, std::string_view name) {
  return OpBuilder("Rank", name).In(x).Attr("dtype", dtype).Build();
}

Output Size(Input x, DType dtype, std::string_view name) {
  return OpBuilder("Size", name).In(x).Attr("dtype", dtype).Build();
}

Output Reshape(Input x, Input shape, std::string_view name) {
  return OpBuilder("Reshape", name).In(x).In(shape).Build();
}

Output Reshape(Input x, const Shape& shape, std::string_view name) {
  return OpBuilder("Reshape", name).In(x).In(DimsTensor(shape)).Build();
}

Output ExpandDims(Input x, int axis, std::string_view name) {
  return OpBuilder("ExpandDims", name).In(x).Attr("axis", axis).Build();
}

Output Squeeze(Input x, const std::vector<int64_t>& axes, std::string_view name) {
  return OpBuilder("Squeeze", name).In(x).Attr("axes", axes).Build();
}

Output Fill(Input dims, Input value, std::string_view name) {
  // As a Tensor, so that the number does not take the integer type of `dims`.
  const Input typed = value.is_literal() ? Input(value.literal(), value.where()) : value;
  return OpBuilder("Fill", name).In(dims).In(typed).Build();
}

Output ZerosLike(Input x, std::string_view name) {
  return OpBuilder("ZerosLike", name).In(x).Build();
}

Output OnesLike(Input x, std::string_view name) {
  return OpBuilder("OnesLike", name).In(x).Build();
}

Output Range(Input start, Input limit, Input delta, std::string_view name) {
  return OpBuilder("Range", name).In(start).In(limit).In(delta).Build();
}

}  // namespace tutti
