// Unique, TopK, DynamicPartition and DynamicStitch are in partition.cc.
#include "tutti/graph/ops/gather.h"

#include <fmt/format.h>

#include "tutti/graph/build.h"
#include "tutti/graph/number.h"
#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

using Ints = std::vector<int64_t>;

absl::Status SetJoined(InferContext& c, DType dtype, std::span<const int64_t> first,
                       std::span<const int64_t> second, std::span<const int64_t> third = {}) {
  Ints dims(first.begin(), first.end());
  dims.insert(dims.end(), second.begin(), second.end());
  dims.insert(dims.end(), third.begin(), third.end());
  std::string why;
  const auto shape = Shape::Make(dims, &why);
  if (!shape) return c.Error("the result is too large: {}", why);
  c.SetOutput(0, dtype, *shape);
  return absl::OkStatus();
}

absl::Status InferGather(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireIndex(1));
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  const Shape& params = c.shape(0);
  const Shape& indices = c.shape(1);
  if (!params.has_rank() || !indices.has_rank()) {
    c.SetOutput(0, c.dtype(0), Shape::UnknownRank());
    return absl::OkStatus();
  }
  TUTTI_ASSIGN_OR_RETURN(const int axis, c.NormalizeAxis(c.attr<int64_t>("axis"), params.rank()));
  return SetJoined(c, c.dtype(0), params.dims().first(axis), indices.dims(),
                   params.dims().subspan(axis + 1));
}

absl::Status InferGatherGrad(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireIndex(1));
  TUTTI_ASSIGN_OR_RETURN(const Shape params, c.ShapeInput(2));
  if (params.has_rank()) {
    TUTTI_RETURN_IF_ERROR(c.NormalizeAxis(c.attr<int64_t>("axis"), params.rank()).status());
  }
  c.SetOutput(0, c.dtype(0), params);
  return absl::OkStatus();
}

absl::Status InferGatherNd(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireIndex(1));
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(1, 1));
  const Shape& params = c.shape(0);
  const Shape& indices = c.shape(1);
  if (!params.has_rank() || !indices.has_rank() || indices.dim(-1) == kUnknownDim) {
    c.SetOutput(0, c.dtype(0), Shape::UnknownRank());
    return absl::OkStatus();
  }
  const int64_t k = indices.dim(-1);
  if (k > params.rank()) {
    return c.Error("the last dimension of indices is {}, params is {}; expected at most {}", k,
                   params.ToString(), params.rank());
  }
  return SetJoined(c, c.dtype(0), indices.dims().first(indices.rank() - 1),
                   params.dims().subspan(k));
}

absl::Status InferScatterNd(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireIndex(0));
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  TUTTI_ASSIGN_OR_RETURN(const Shape shape, c.ShapeInput(2));
  const Shape& indices = c.shape(0);
  const Shape& updates = c.shape(1);
  if (shape.has_rank() && indices.has_rank() && indices.dim(-1) != kUnknownDim) {
    const int64_t k = indices.dim(-1);
    if (k > shape.rank()) {
      return c.Error(
          "the last dimension of indices is {}, shape has {} values; expected at most {}", k,
          shape.rank(), shape.rank());
    }
    Ints wanted(indices.dims().begin(), indices.dims().end() - 1);
    wanted.insert(wanted.end(), shape.dims().begin() + k, shape.dims().end());
    const auto made = Shape::Make(wanted);
    if (!made || !made->CompatibleWith(updates)) {
      return c.Error("updates is {}; expected [{}], from indices {} and shape {}",
                     updates.ToString(), fmt::join(wanted, ", "), indices.ToString(),
                     shape.ToString());
    }
  }
  c.SetOutput(0, c.dtype(1), shape);
  return absl::OkStatus();
}

// The dimensions before the last must be equal.
absl::Status InferGatherLast(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireIndex(1));
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(1, 1));
  const Shape& x = c.shape(0);
  const Shape& indices = c.shape(1);
  if (!x.has_rank() || !indices.has_rank()) {
    c.SetOutput(0, c.dtype(0), indices);
    return absl::OkStatus();
  }
  const auto merged = x.WithDim(-1, indices.dim(-1)).MergedWith(indices);
  if (!merged) {
    return c.Error("x is {}, indices is {}; expected the same dimensions before the last",
                   x.ToString(), indices.ToString());
  }
  c.SetOutput(0, c.dtype(0), *merged);
  return absl::OkStatus();
}

absl::Status InferGatherLastGrad(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireIndex(1));
  TUTTI_ASSIGN_OR_RETURN(const Shape x, c.ShapeInput(2));
  if (!c.shape(0).CompatibleWith(c.shape(1))) {
    return c.Error("{}, {}; expected equal shapes", c.DescribeInput(0), c.DescribeInput(1));
  }
  c.SetOutput(0, c.dtype(0), x);
  return absl::OkStatus();
}

absl::Status InferOneHot(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireIndex(0));
  const int64_t depth = c.attr<int64_t>("depth");
  const DType dtype = c.attr<DType>("dtype");
  if (depth < 0) return c.Error("depth is {}; expected 0 or more", depth);
  if (dtype == DType::kInvalid) return c.Error("attribute \"dtype\" is invalid");
  for (const char* name : {"on_value", "off_value"}) {
    const auto value = NumberAs(c.attr<double>(name), dtype);
    if (!value.ok()) return c.Error("{}: {}", name, MessageOf(value.status()));
  }
  const Shape& indices = c.shape(0);
  if (!indices.has_rank()) {
    c.SetOutput(0, dtype, indices);
    return absl::OkStatus();
  }
  TUTTI_ASSIGN_OR_RETURN(const int axis,
                         c.NormalizeAxis(c.attr<int64_t>("axis"), indices.rank() + 1));
  const auto dims = indices.dims();
  return SetJoined(c, dtype, dims.first(axis), std::span(&depth, 1), dims.subspan(axis));
}

absl::Status InferUnsortedSegmentSum(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireIndex(1));
  const int64_t num = c.attr<int64_t>("num_segments");
  if (num < 0) return c.Error("num_segments is {}; expected 0 or more", num);
  const Shape& data = c.shape(0);
  const Shape& ids = c.shape(1);
  if (!data.has_rank() || !ids.has_rank()) {
    c.SetOutput(0, c.dtype(0), Shape::UnknownRank());
    return absl::OkStatus();
  }
  if (ids.rank() > data.rank() || !Shape(data.dims().first(ids.rank())).CompatibleWith(ids)) {
    return c.Error("data is {}, ids is {}; expected ids to have the first dimensions of data",
                   data.ToString(), ids.ToString());
  }
  return SetJoined(c, c.dtype(0), std::span(&num, 1), data.dims().subspan(ids.rank()));
}

}  // namespace

void RegisterGatherOps(OpRegistry& registry) {
  registry.Add({.name = "Gather",
                .inputs = {"params", "indices"},
                .attrs = {{"axis", int64_t{0}}},
                .infer = InferGather,
                .gradient = Gradient::kDefined});
  // A Gather along axis 0 that copies rows of a variable from where it lives.
  registry.Add({.name = "_GatherRows",
                .inputs = {"&params", "indices"},
                .attrs = {{"axis", int64_t{0}}},
                .infer = InferGather,
                .stateful = true,
                .without_effects = true,
                .reads_references = true,
                .internal = true});
  registry.Add({.name = "GatherGrad",
                .inputs = {"gradient", "indices", "params_shape"},
                .attrs = {{"axis", int64_t{0}}},
                .infer = InferGatherGrad,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "GatherNd",
                .inputs = {"params", "indices"},
                .infer = InferGatherNd,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "ScatterNd",
                .inputs = {"indices", "updates", "shape"},
                .infer = InferScatterNd,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "GatherLast",
                .inputs = {"x", "indices"},
                .infer = InferGatherLast,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "GatherLastGrad",
                .inputs = {"gradient", "indices", "x_shape"},
                .infer = InferGatherLastGrad,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "OneHot",
                .inputs = {"indices"},
                .attrs = {{"depth", AttrType::kInt},
                          {"axis", int64_t{-1}},
                          {"dtype", kFloat32},
                          {"on_value", 1.0},
                          {"off_value", 0.0}},
                .infer = InferOneHot,
                .gradient = Gradient::kZero});
  registry.Add({.name = "UnsortedSegmentSum",
                .inputs = {"data", "ids"},
                .attrs = {{"num_segments", AttrType::kInt}},
                .infer = InferUnsortedSegmentSum,
                .gradient = Gradient::kDefined});
}

Output Gather(Input params, Input indices, int axis, std::string_view name) {
  return OpBuilder("Gather", name).In(params).In(indices).Attr("axis", axis).Build();
}

Output GatherGrad(Input gradient, Input indices, Input params_shape, int axis,
                  std::string_view name) {
  return OpBuilder("GatherGrad", name)
      .In(gradient)
      .In(indices)
      .In(params_shape)
      .Attr("axis", axis)
      .Build();
}

Output GatherNd(Input params, Input indices, std::string_view name) {
  return OpBuilder("GatherNd", name).In(params).In(indices).Build();
}

Output ScatterNd(Input indices, Input updates, Input shape, std::string_view name) {
  return OpBuilder("ScatterNd", name).In(indices).In(updates).In(shape).Build();
}

Output GatherLast(Input x, Input indices, std::string_view name) {
  return OpBuilder("GatherLast", name).In(x).In(indices).Build();
}

Output GatherLastGrad(Input gradient, Input indices, Input x_shape, std::string_view name) {
  return OpBuilder("GatherLastGrad", name).In(gradient).In(indices).In(x_shape).Build();
}

Output OneHot(Input indices, int64_t depth, const OneHotOptions& options, std::string_view name) {
  return OpBuilder("OneHot", name)
      .In(indices)
      .Attr("depth", depth)
      .Attr("axis", options.axis)
      .Attr("dtype", options.dtype)
      .Attr("on_value", options.on_value)
      .Attr("off_value", options.off_value)
      .Build();
}

Output UnsortedSegmentSum(Input data, Input ids, int64_t num_segments, std::string_view name) {
  return OpBuilder("UnsortedSegmentSum", name)
      .In(data)
      .In(ids)
      .Attr("num_segments", num_segments)
      .Build();
}

}  // namespace tutti
