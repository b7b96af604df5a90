#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "tutti/graph/input.h"

// Identity, Shape, Reshape, ExpandDims, Fill, Range, ....
namespace tutti {

// x itself, under another node.
Output Identity(Input x, std::string_view name = "");

// x itself; gradients end here.
Output StopGradient(Input x, std::string_view name = "");

// The dimensions of x as an integer vector of `dtype` (int64 or int32).
Output ShapeOf(Input x, DType dtype = kInt64, std::string_view name = "");

// The number of dimensions of x as a scalar of `dtype` (int64 or int32).
Output Rank(Input x, DType dtype = kInt64, std::string_view name = "");

// The number of elements of x as a scalar of `dtype` (int64 or int32).
Output Size(Input x, DType dtype = kInt64, std::string_view name = "");

// x with other dimensions and the same elements in row-major order. `shape` is an integer vector;
// one of its values may be -1, which stands for what the others leave.
Output Reshape(Input x, Input shape, std::string_view name = "");
// The same with fixed dimensions: Reshape(x, {-1, 784}).
Output Reshape(Input x, const Shape& shape, std::string_view name = "");
inline Output Reshape(Input x, std::initializer_list<int64_t> dims, std::string_view name = "") {
  return Reshape(x, Shape(dims), name);
}

// x with a dimension of 1 inserted before `axis` (negative from the end: -1 appends one).
Output ExpandDims(Input x, int axis, std::string_view name = "");

// x without the dimensions `axes` (negative from the end), which must be 1; all that are 1 when
// `axes` is empty.
Output Squeeze(Input x, const std::vector<int64_t>& axes = {}, std::string_view name = "");

// A tensor of dimensions `dims` (an integer vector) with the scalar `value` everywhere. A number
// given as `value` keeps its own type: Fill(dims, 0.5f) is float32.
Output Fill(Input dims, Input value, std::string_view name = "");

// Zeros, ones, of the type and shape of x.
Output ZerosLike(Input x, std::string_view name = "");
Output OnesLike(Input x, std::string_view name = "");

// start, start + delta, ... up to but without `limit`: scalars of one dtype, int32, int64, float32
// or float64. A negative delta counts down.
Output Range(Input start, Input limit, Input delta, std::string_view name = "");

}  // namespace tutti
