#include "tutti/kernels/shape/gather_geometry.h"

#include <array>

#include "tutti/tensor/product.h"

namespace tutti {
namespace {

absl::StatusOr<Shape> Joined(std::span<const int64_t> first, std::span<const int64_t> second,
                             std::span<const int64_t> third = {}) {
  std::array<int64_t, 3 * kMaxRank> dims{};
  size_t rank = 0;
  for (const auto& part : {first, second, third}) {
    for (const int64_t dim : part) dims[rank++] = dim;
  }
  std::string why;
  const auto shape = Shape::Make(std::span<const int64_t>(dims.data(), rank), &why);
  if (!shape) return InvalidArgument("the result is too large: {}", why);
  return *shape;
}

absl::StatusOr<int> AxisOf(const KernelContext& context, int rank) {
  const int64_t given = context.node->attr<int64_t>("axis");
  if (given < -rank || given >= rank) {
    return InvalidArgument("axis {} is out of range for {} dimensions", given, rank);
  }
  return int(given < 0 ? given + rank : given);
}

}  // namespace

absl::StatusOr<GatherGeometry> StartGather(KernelContext& context, const DynamicKernel& kernel) {
  const Shape& params = context.input(0).shape();
  const Tensor& indices = context.input(1);
  TUTTI_ASSIGN_OR_RETURN(const int axis, AxisOf(context, params.rank()));
  const auto before = params.dims().first(axis);
  const auto after = params.dims().subspan(axis + 1);
  TUTTI_ASSIGN_OR_RETURN(const Shape shape, Joined(before, indices.shape().dims(), after));
  TUTTI_RETURN_IF_ERROR(CheckIndices(indices, params.dim(axis), "indices"));
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, shape));
  // Of an empty result the dimensions may multiply to anything, and there is nothing to do.
  if (shape.elements() == 0) return GatherGeometry{.dim = params.dim(axis)};
  return GatherGeometry{ProductOf(before), params.dim(axis), ProductOf(after), indices.elements()};
}

absl::StatusOr<GatherGeometry> StartGatherGrad(KernelContext& context,
                                               const DynamicKernel& kernel) {
  const Shape& gradient = context.input(0).shape();
  const Tensor& indices = context.input(1);
  TUTTI_ASSIGN_OR_RETURN(const Shape params, ShapeValue(context.input(2), "params_shape"));
  TUTTI_ASSIGN_OR_RETURN(const int axis, AxisOf(context, params.rank()));
  const auto before = params.dims().first(axis);
  const auto after = params.dims().subspan(axis + 1);
  TUTTI_ASSIGN_OR_RETURN(const Shape wanted, Joined(before, indices.shape().dims(), after));
  if (gradient != wanted) {
    return InvalidArgument("gradient is {}; expected {}, from indices {} and params_shape {}",
                           gradient.ToString(), wanted.ToString(), indices.shape().ToString(),
                           params.ToString());
  }
  TUTTI_RETURN_IF_ERROR(CheckIndices(indices, params.dim(axis), "indices"));
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, params));
  if (wanted.elements() == 0) return GatherGeometry{.dim = params.dim(axis)};
  return GatherGeometry{ProductOf(before), params.dim(axis), ProductOf(after), indices.elements()};
}

absl::StatusOr<NdGeometry> StartGatherNd(KernelContext& context, const DynamicKernel& kernel) {
  const Shape& params = context.input(0).shape();
  const Shape& indices = context.input(1).shape();
  const int64_t depth = indices.dim(-1);
  if (depth > params.rank()) {
    return InvalidArgument("the last dimension of indices is {}, params is {}; expected at most {}",
                           depth, params.ToString(), params.rank());
  }
  const auto rows = indices.dims().first(indices.rank() - 1);
  const auto slice = params.dims().subspan(depth);
  TUTTI_ASSIGN_OR_RETURN(const Shape shape, Joined(rows, slice));
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, shape));
  return NdGeometry{params, depth == 0 && shape.elements() == 0 ? 0 : ProductOf(rows), depth,
                    shape.elements() == 0 ? 0 : ProductOf(slice)};
}

absl::StatusOr<NdGeometry> StartScatterNd(KernelContext& context, const DynamicKernel& kernel) {
  const Shape& indices = context.input(0).shape();
  const Shape& updates = context.input(1).shape();
  TUTTI_ASSIGN_OR_RETURN(const Shape shape, ShapeValue(context.input(2), "shape"));
  const int64_t depth = indices.dim(-1);
  if (depth > shape.rank()) {
    return InvalidArgument("the last dimension of indices is {}, shape is {}; expected at most {}",
                           depth, shape.ToString(), shape.rank());
  }
  const auto rows = indices.dims().first(indices.rank() - 1);
  const auto slice = shape.dims().subspan(depth);
  TUTTI_ASSIGN_OR_RETURN(const Shape wanted, Joined(rows, slice));
  if (updates != wanted) {
    return InvalidArgument("updates is {}; expected {}, from indices {} and shape {}",
                           updates.ToString(), wanted.ToString(), indices.ToString(),
                           shape.ToString());
  }
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, shape));
  return NdGeometry{shape, depth == 0 && wanted.elements() == 0 ? 0 : ProductOf(rows), depth,
                    wanted.elements() == 0 ? 0 : ProductOf(slice)};
}

absl::StatusOr<int64_t> SliceStart(const NdGeometry& geometry, const Tensor& indices, int64_t row) {
  int64_t slice = 0;
  for (int64_t i = 0; i < geometry.depth; ++i) {
    const int64_t index = IndexAt(indices, row * geometry.depth + i);
    const int64_t limit = geometry.shape.dim(int(i));
    if (index < 0 || index >= limit) {
      return BadIndex(indices, row * geometry.depth + i, limit, "indices");
    }
    if (geometry.inner > 0) slice = slice * limit + index;
  }
  return slice * geometry.inner;
}

absl::StatusOr<OneHotGeometry> StartOneHot(KernelContext& context, const DynamicKernel& kernel) {
  const Shape& indices = context.input(0).shape();
  const Node& node = *context.node;
  OneHotGeometry g{.depth = node.attr<int64_t>("depth"),
                   .on = node.attr<double>("on_value"),
                   .off = node.attr<double>("off_value")};
  if (indices.rank() == kMaxRank) {
    return InvalidArgument("indices is {}; a tensor has at most {} dimensions", indices.ToString(),
                           kMaxRank);
  }
  TUTTI_ASSIGN_OR_RETURN(const int axis, AxisOf(context, indices.rank() + 1));
  const auto before = indices.dims().first(axis);
  const auto after = indices.dims().subspan(axis);
  TUTTI_ASSIGN_OR_RETURN(const Shape shape, Joined(before, std::span(&g.depth, 1), after));
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, shape));
  if (indices.elements() == 0) return g;
  g.outer = ProductOf(before);
  g.inner = ProductOf(after);
  return g;
}

absl::StatusOr<SegmentGeometry> StartSegmentSum(KernelContext& context,
                                                const DynamicKernel& kernel) {
  const Shape& data = context.input(0).shape();
  const Tensor& ids = context.input(1);
  const int64_t segments = context.node->attr<int64_t>("num_segments");
  if (ids.shape().rank() > data.rank() ||
      Shape(data.dims().first(ids.shape().rank())) != ids.shape()) {
    return InvalidArgument(
        "data is {}, ids is {}; expected ids to have the first dimensions of data", data.ToString(),
        ids.shape().ToString());
  }
  const auto slice = data.dims().subspan(ids.shape().rank());
  TUTTI_ASSIGN_OR_RETURN(const Shape shape, Joined(std::span(&segments, 1), slice));
  TUTTI_RETURN_IF_ERROR(CheckIndices(ids, segments, "ids"));
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, shape));
  return SegmentGeometry{ids.elements(), data.elements() == 0 ? 0 : ProductOf(slice)};
}

absl::StatusOr<TopKGeometry> StartTopK(KernelContext& context, const DynamicKernel& kernel) {
  const Shape& x = context.input(0).shape();
  TopKGeometry g{.width = x.dim(-1), .k = context.node->attr<int64_t>("k")};
  if (g.k > g.width) {
    return InvalidArgument("k is {}, x is {}; expected at most {}, its last dimension", g.k,
                           x.ToString(), g.width);
  }
  for (const int output : {0, 1}) {
    TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, output, x.WithDim(-1, g.k)));
  }
  if (g.width > 0) g.rows = x.elements() / g.width;
  return g;
}

}  // namespace tutti
