#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tutti/graph/input.h"

// Reductions over axes, and what is close to them: Sum, Mean, Max, ArgMax, Cumsum, LogSumExp, ...;
// BroadcastTo and SumToShape, which are each other's gradient.
namespace tutti {

// The axes to reduce (negative values count from the end; empty: all axes), and whether they are
// kept as dimensions of size 1.
//   Sum(x, {.axes = {0}});  Max(x, {.axes = {-1}, .keep_dims = true});
struct ReduceOptions {
  std::vector<int64_t> axes = {};
  bool keep_dims = false;
};

// If a reduced dimension has size 0, the sum is 0, the product 1, the mean NaN, the maximum the
// lowest and the minimum the highest value of the dtype. A NaN among the elements gives NaN.
// Integers wrap around. 16-bit floats are summed in higher precision.
Output Sum(Input x, const ReduceOptions& options = {}, std::string_view name = "");
Output Mean(Input x, const ReduceOptions& options = {}, std::string_view name = "");
Output Prod(Input x, const ReduceOptions& options = {}, std::string_view name = "");
// The gradient of Max and Min goes to all elements that reach the extreme, in equal shares.
Output Max(Input x, const ReduceOptions& options = {}, std::string_view name = "");
Output Min(Input x, const ReduceOptions& options = {}, std::string_view name = "");
// Reduce bool values. If a reduced dimension has size 0, All is true and Any is false.
Output All(Input x, const ReduceOptions& options = {}, std::string_view name = "");
Output Any(Input x, const ReduceOptions& options = {}, std::string_view name = "");
// Is every element of x, of a floating-point type, finite? Of nothing it is true.
Output AllFinite(Input x, std::string_view name = "");
// log(sum(exp(x))) without overflow. -infinity if a reduced dimension has size 0.
Output LogSumExp(Input x, const ReduceOptions& options = {}, std::string_view name = "");

// The index along `axis` of the largest (smallest) element, the first if there are several; a NaN
// counts as the extreme. The axis is removed. `dtype` of the result is int64 or int32. At run time
// the axis must not have size 0.
Output ArgMax(Input x, int64_t axis, DType dtype = kInt64, std::string_view name = "");
Output ArgMin(Input x, int64_t axis, DType dtype = kInt64, std::string_view name = "");

struct CumsumOptions {
  bool exclusive = false;  // leave the element itself out: the first sum is 0
  bool reverse = false;    // sum from the end of the axis
};

// Sums of the elements up to each one along `axis`.
Output Cumsum(Input x, int64_t axis, const CumsumOptions& options = {}, std::string_view name = "");

// x repeated to `shape` (an integer vector) by the rules of NumPy: missing leading dimensions and
// dimensions of 1 stretch.
Output BroadcastTo(Input x, Input shape, std::string_view name = "");

// The sum of x over everything that BroadcastTo would repeat to get from `shape` to x's shape. x
// itself when the shapes are equal.
Output SumToShape(Input x, Input shape, std::string_view name = "");

// BroadcastTo and SumToShape to the shape of `like`; no node at all where the graph knows that the
// shapes are equal, and a constant shape where it knows that.
Output BroadcastLike(Output x, Output like);
Output SumToShapeOf(Output x, Output like);

// For each element the product of all others of its group: those that differ from it only along
// `axes` (all if none are given). Exact when there are zeros. The gradient of Prod is made from it.
Output ExclusiveProd(Input x, const std::vector<int64_t>& axes, std::string_view name = "");

}  // namespace tutti
