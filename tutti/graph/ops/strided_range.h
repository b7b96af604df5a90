#pragma once

#include <span>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/tensor/shape.h"

namespace tutti {

// What a slice takes from one dimension: elements begin, begin + stride, ..., `count` of them.
struct StridedRange {
  int64_t begin = 0;
  int64_t count = 0;  // kUnknownDim when the dimension is unknown
  int64_t stride = 1;
  bool shrink = false;  // the dimension goes away
};

// The attributes of StridedSlice.
struct StridedSliceSpec {
  std::span<const int64_t> begin;
  std::span<const int64_t> end;
  std::span<const int64_t> strides;
  int64_t begin_mask = 0;
  int64_t end_mask = 0;
  int64_t shrink_mask = 0;
};

// The ranges of StridedSlice for an x of known rank, one for each dimension; shared by its shape
// function and its kernels.
absl::StatusOr<std::vector<StridedRange>> StridedRanges(const Shape& x,
                                                        const StridedSliceSpec& spec);

}  // namespace tutti
