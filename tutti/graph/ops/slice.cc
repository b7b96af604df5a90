#include <algorithm>

#include "tutti/base/checked.h"
#include "tutti/graph/build.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/register.h"
#include "tutti/graph/ops/strided_range.h"

namespace tutti {
namespace {

using Ints = std::vector<int64_t>;

std::optional<Ints> Values(const std::optional<Tensor>& tensor) {
  if (!tensor) return std::nullopt;
  Ints values;
  for (int64_t i = 0; i < tensor->elements(); ++i) {
    values.push_back(tensor->dtype() == kInt32 ? tensor->data<int32_t>()[i]
                                               : tensor->data<int64_t>()[i]);
  }
  return values;
}

absl::Status RequireOnePerDimension(const InferContext& c, int i, int rank) {
  TUTTI_RETURN_IF_ERROR(c.RequireIndex(i));
  TUTTI_RETURN_IF_ERROR(c.RequireRank(i, 1));
  if (c.shape(i).has_rank() && c.shape(i).dim(0) != kUnknownDim && c.shape(i).dim(0) != rank) {
    return c.Error("{} has {} values; expected {}, one for each dimension", c.def().InputName(i),
                   c.shape(i).dim(0), rank);
  }
  return absl::OkStatus();
}

absl::Status InferSlice(InferContext& c) {
  const Shape& x = c.shape(0);
  if (!x.has_rank()) {
    TUTTI_ASSIGN_OR_RETURN(const Shape like_size, c.ShapeInput(2));
    c.SetOutput(0, c.dtype(0),
                like_size.has_rank() ? Shape::UnknownOfRank(like_size.rank()) : like_size);
    return absl::OkStatus();
  }
  TUTTI_RETURN_IF_ERROR(RequireOnePerDimension(c, 1, x.rank()));
  TUTTI_RETURN_IF_ERROR(RequireOnePerDimension(c, 2, x.rank()));
  const auto begin = Values(c.ConstantInput(1));
  const auto size = Values(c.ConstantInput(2));
  Shape result = Shape::UnknownOfRank(x.rank());
  if (!size) {
    TUTTI_ASSIGN_OR_RETURN(const Shape partly, c.ShapeInput(2));
    if (partly.has_rank()) result = partly;
  }
  for (int i = 0; i < x.rank(); ++i) {
    const int64_t dim = x.dim(i);
    if (begin && ((*begin)[i] < 0 || (dim != kUnknownDim && (*begin)[i] > dim))) {
      return c.Error("begin[{}] is {}, x is {}; expected 0 to {}", i, (*begin)[i], x.ToString(),
                     dim == kUnknownDim ? "its dimension" : std::to_string(dim));
    }
    if (!size) continue;
    const int64_t wanted = (*size)[i];
    if (wanted < -1) return c.Error("size[{}] is {}; expected -1 or more", i, wanted);
    if (wanted == -1) {
      if (begin && dim != kUnknownDim) result = result.WithDim(i, dim - (*begin)[i]);
      continue;
    }
    if (dim != kUnknownDim && wanted > dim - (begin ? (*begin)[i] : 0)) {
      return c.Error("begin[{}] + size[{}] is {} + {}, x is {}; expected at most {}", i, i,
                     begin ? (*begin)[i] : 0, wanted, x.ToString(), dim);
    }
    result = result.WithDim(i, wanted);
  }
  c.SetOutput(0, c.dtype(0), result);
  return absl::OkStatus();
}

absl::Status InferSliceGrad(InferContext& c) {
  TUTTI_ASSIGN_OR_RETURN(const Shape x, c.ShapeInput(1));
  TUTTI_RETURN_IF_ERROR(c.RequireIndex(2));
  TUTTI_RETURN_IF_ERROR(c.RequireRank(2, 1));
  c.SetOutput(0, c.dtype(0), x);
  return absl::OkStatus();
}

StridedSliceSpec SpecOf(const InferContext& c) {
  return {c.attr<Ints>("begin"),       c.attr<Ints>("end"),
          c.attr<Ints>("strides"),     c.attr<int64_t>("begin_mask"),
          c.attr<int64_t>("end_mask"), c.attr<int64_t>("shrink_mask")};
}

absl::Status InferStridedSlice(InferContext& c) {
  const Shape& x = c.shape(0);
  if (!x.has_rank()) {
    c.SetOutput(0, c.dtype(0), x);
    return absl::OkStatus();
  }
  TUTTI_ASSIGN_OR_RETURN(const auto ranges, StridedRanges(x, SpecOf(c)));
  Ints dims;
  for (const StridedRange& range : ranges) {
    if (!range.shrink) dims.push_back(range.count);
  }
  c.SetOutput(0, c.dtype(0), Shape(std::span<const int64_t>(dims)));
  return absl::OkStatus();
}

absl::Status InferStridedSliceGrad(InferContext& c) {
  TUTTI_ASSIGN_OR_RETURN(const Shape x, c.ShapeInput(1));
  if (x.has_rank()) TUTTI_RETURN_IF_ERROR(StridedRanges(x, SpecOf(c)).status());
  c.SetOutput(0, c.dtype(0), x);
  return absl::OkStatus();
}

std::vector<AttrDef> StridedSliceAttrs() {
  return {{"begin", AttrType::kInts}, {"end", AttrType::kInts}, {"strides", Ints{}},
          {"begin_mask", int64_t{0}}, {"end_mask", int64_t{0}}, {"shrink_mask", int64_t{0}}};
}

OpBuilder& SetAttrs(OpBuilder& builder, const StridedSliceOptions& options) {
  return builder.Attr("begin", options.begin)
      .Attr("end", options.end)
      .Attr("strides", options.strides)
      .Attr("begin_mask", options.begin_mask)
      .Attr("end_mask", options.end_mask)
      .Attr("shrink_mask", options.shrink_mask);
}

// One end of a Python slice: negative counts from the back, then clamped to the edges.
int64_t Clamped(int64_t index, int64_t dim, int64_t lowest, int64_t highest) {
  return std::clamp(index < 0 ? index + dim : index, lowest, highest);
}

absl::StatusOr<StridedRange> RangeOf(int i, int64_t dim, const StridedSliceSpec& spec) {
  const int64_t bit = int64_t{1} << i;
  StridedRange range{.stride = spec.strides.empty() ? 1 : spec.strides[i]};
  if (spec.shrink_mask & bit) {
    const int64_t index = spec.begin[i];
    if (dim != kUnknownDim && (index < -dim || index >= dim)) {
      return OutOfRange("begin[{}] is {}, but dimension {} of x is {}; expected {} to {}", i, index,
                        i, dim, -dim, dim - 1);
    }
    return StridedRange{index < 0 && dim != kUnknownDim ? index + dim : index, 1, 1, true};
  }
  if (range.stride == 0 || range.stride == INT64_MIN) {
    return InvalidArgument("strides[{}] is {}; expected another value", i, range.stride);
  }
  if (dim == kUnknownDim) {
    range.count = kUnknownDim;
    return range;
  }
  const bool up = range.stride > 0;
  const int64_t lowest = up ? 0 : -1;
  const int64_t highest = up ? dim : dim - 1;
  range.begin = spec.begin_mask & bit ? (up ? lowest : highest)
                                      : Clamped(spec.begin[i], dim, lowest, highest);
  const int64_t end =
      spec.end_mask & bit ? (up ? highest : lowest) : Clamped(spec.end[i], dim, lowest, highest);
  const int64_t distance = up ? end - range.begin : range.begin - end;
  const int64_t step = up ? range.stride : -range.stride;
  range.count = distance <= 0 ? 0 : (distance - 1) / step + 1;
  return range;
}

}  // namespace

absl::StatusOr<std::vector<StridedRange>> StridedRanges(const Shape& x,
                                                        const StridedSliceSpec& spec) {
  const size_t given = spec.begin.size();
  if (given != spec.end.size() || (!spec.strides.empty() && given != spec.strides.size())) {
    return InvalidArgument("begin has {} values, end {}, strides {}; expected equally many", given,
                           spec.end.size(), spec.strides.size());
  }
  if (given > size_t(x.rank())) {
    return InvalidArgument("begin has {} values, x is {}; expected at most one for each dimension",
                           given, x.ToString());
  }
  std::vector<StridedRange> ranges;
  for (int i = 0; i < x.rank(); ++i) {
    if (size_t(i) >= given) {
      ranges.push_back({.begin = 0, .count = x.dim(i)});
      continue;
    }
    TUTTI_ASSIGN_OR_RETURN(const StridedRange range, RangeOf(i, x.dim(i), spec));
    ranges.push_back(range);
  }
  return ranges;
}

void RegisterSliceOps(OpRegistry& registry) {
  registry.Add({.name = "Slice",
                .inputs = {"x", "begin", "size"},
                .infer = InferSlice,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "SliceGrad",
                .inputs = {"gradient", "x_shape", "begin"},
                .infer = InferSliceGrad,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "StridedSlice",
                .inputs = {"x"},
                .attrs = StridedSliceAttrs(),
                .infer = InferStridedSlice,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "StridedSliceGrad",
                .inputs = {"gradient", "x_shape"},
                .attrs = StridedSliceAttrs(),
                .infer = InferStridedSliceGrad,
                .gradient = Gradient::kDefined});
}

Output Slice(Input x, Input begin, Input size, std::string_view name) {
  return OpBuilder("Slice", name).In(x).In(begin).In(size).Build();
}

Output Slice(Input x, const std::vector<int64_t>& begin, const std::vector<int64_t>& size,
             std::string_view name) {
  const auto vector = [](const std::vector<int64_t>& values) {
    return Tensor::Of<int64_t>(Shape{int64_t(values.size())}, std::span(values));
  };
  return OpBuilder("Slice", name).In(x).In(vector(begin)).In(vector(size)).Build();
}

Output SliceGrad(Input gradient, Input x_shape, Input begin, std::string_view name) {
  return OpBuilder("SliceGrad", name).In(gradient).In(x_shape).In(begin).Build();
}

Output StridedSlice(Input x, const StridedSliceOptions& options, std::string_view name) {
  OpBuilder builder("StridedSlice", name);
  return SetAttrs(builder.In(x), options).Build();
}

Output StridedSliceGrad(Input gradient, Input x_shape, const StridedSliceOptions& options,
                        std::string_view name) {
  OpBuilder builder("StridedSliceGrad", name);
  return SetAttrs(builder.In(gradient).In(x_shape), options).Build();
}

}  // namespace tutti
