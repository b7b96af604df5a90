#pragma once

#include <span>

#include "tutti/device/kernel.h"
#include "tutti/kernels/dynamic_kernel.h"
#include "tutti/kernels/shape/indices.h"

// What the kernels of the gather family have in common, reference and fast: they check the inputs,
// make the output, and see the work as plain numbers.
namespace tutti {

// Gather and GatherGrad: params is [outer, dim, inner], the result [outer, indices, inner].
struct GatherGeometry {
  int64_t outer = 0;
  int64_t dim = 0;
  int64_t inner = 0;
  int64_t indices = 0;
};

// Checks the inputs of Gather, makes its output.
absl::StatusOr<GatherGeometry> StartGather(KernelContext& context, const DynamicKernel& kernel);
absl::StatusOr<GatherGeometry> StartGatherGrad(KernelContext& context, const DynamicKernel& kernel);

// GatherNd and ScatterNd: `count` rows of `depth` indices into the first dimensions of `shape`,
// each naming a slice of `inner` elements.
struct NdGeometry {
  Shape shape;
  int64_t count = 0;
  int64_t depth = 0;
  int64_t inner = 0;
};
absl::StatusOr<NdGeometry> StartGatherNd(KernelContext& context, const DynamicKernel& kernel);
absl::StatusOr<NdGeometry> StartScatterNd(KernelContext& context, const DynamicKernel& kernel);
// Where, in elements, the slice of row `row` starts. An error when an index is out of range.
absl::StatusOr<int64_t> SliceStart(const NdGeometry& geometry, const Tensor& indices, int64_t row);

// OneHot: indices is [outer, inner], the result [outer, depth, inner].
struct OneHotGeometry {
  int64_t outer = 0;
  int64_t depth = 0;
  int64_t inner = 0;
  double on = 1;
  double off = 0;
};
absl::StatusOr<OneHotGeometry> StartOneHot(KernelContext& context, const DynamicKernel& kernel);

// UnsortedSegmentSum: data is [rows, inner], the result [segments, inner].
struct SegmentGeometry {
  int64_t rows = 0;
  int64_t inner = 0;
};
absl::StatusOr<SegmentGeometry> StartSegmentSum(KernelContext& context,
                                                const DynamicKernel& kernel);

// TopK: x is [rows, width], both results [rows, k].
struct TopKGeometry {
  int64_t rows = 0;
  int64_t width = 0;
  int64_t k = 0;
};
absl::StatusOr<TopKGeometry> StartTopK(KernelContext& context, const DynamicKernel& kernel);

}  // namespace tutti
