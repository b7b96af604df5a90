#pragma once

#include <source_location>
#include <span>
#include <string_view>
#include <vector>

#include "tutti/graph/input.h"

// Gather, ScatterNd, OneHot, TopK, Unique, DynamicPartition, ....
// Indices are int32 or int64; one that is out of range is an OUT_OF_RANGE error of the run.
namespace tutti {

// The slices of `params` along `axis` at `indices`:
// [params before axis] + [indices] + [params after axis]. Its gradient along axis 0 stays sparse.
Output Gather(Input params, Input indices, int axis = 0, std::string_view name = "");

// indices is [..., k]: each row of it names an element (or, for k below the rank of params, a
// slice) of params.
Output GatherNd(Input params, Input indices, std::string_view name = "");

// A tensor of `shape` (an integer vector), zero but for updates[i...] added at indices[i..., :].
Output ScatterNd(Input indices, Input updates, Input shape, std::string_view name = "");

// x[..., indices[..., j]] along the last dimension; the dimensions before it are those of x.
Output GatherLast(Input x, Input indices, std::string_view name = "");

struct OneHotOptions {
  int axis = -1;  // where the dimension `depth` goes
  DType dtype = kFloat32;
  double on_value = 1;
  double off_value = 0;
};
// indices with a dimension of `depth` more, on_value where its position equals the index and
// off_value elsewhere. An index outside 0..depth-1 has off_value everywhere.
Output OneHot(Input indices, int64_t depth, const OneHotOptions& options = {},
              std::string_view name = "");

// The sum, for each id in 0..num_segments-1, of the slices of data with that id: `ids` has the
// first dimensions of data. Segments without a slice are zero.
Output UnsortedSegmentSum(Input data, Input ids, int64_t num_segments, std::string_view name = "");

struct UniqueResult {
  Output values;   // the distinct values of x in the order of their first appearance
  Output indices;  // int64, as long as x: x[i] == values[indices[i]]
  Output counts;   // int64: how often each value appears
};
// x is a vector.
UniqueResult Unique(Input x, std::string_view name = "");

struct TopKResult {
  Output values;   // [..., k]
  Output indices;  // int64, [..., k]: where in the last dimension they stand
};
// The k largest of each row of the last dimension, largest first; of equal ones, the one that
// stands first comes first. NaN counts as the largest.
TopKResult TopK(Input x, int64_t k, std::string_view name = "");

// Result p has, in their order, the slices of data whose entry in `partitions` (int32 or int64, of
// the first dimensions of data) is p.
std::vector<Output> DynamicPartition(Input data, Input partitions, int64_t num_partitions,
                                     std::string_view name = "");

// The inverse: result[indices[m][i...]] = data[m][i...]. The first dimension is one more than the
// largest index. Where an index repeats the last one wins; rows that no index names are zero.
Output DynamicStitch(std::span<const Output> indices, std::span<const Output> data,
                     std::string_view name = "",
                     std::source_location where = std::source_location::current());

// The gradients of the above that are ops of their own. Shapes are integer vectors.

// Zeros of params_shape with the slices of `gradient` added at `indices` along `axis`.
Output GatherGrad(Input gradient, Input indices, Input params_shape, int axis,
                  std::string_view name = "");
// Zeros of x_shape with `gradient` added at `indices` of the last dimension.
Output GatherLastGrad(Input gradient, Input indices, Input x_shape, std::string_view name = "");
// For each of `indices` the rows of `gradient` that DynamicStitch took from its data, zero where a
// later row won.
std::vector<Output> DynamicStitchGrad(Input gradient, std::span<const Output> indices,
                                      std::string_view name = "");

}  // namespace tutti
