#pragma once

#include <string_view>

#include "tutti/graph/input.h"

// Identity, Shape, Reshape, ExpandDims, Fill, Range, ....
namespace tutti {

// The dimensions of x as an integer vector of `dtype` (int64 or int32).
Output ShapeOf(Input x, DType dtype = kInt64, std::string_view name = "");
Output ZerosLike(Input x, std::string_view name = "");
Output OnesLike(Input x, std::string_view name = "");
// x with a dimension of 1 inserted before `axis` (negative from the end).
Output ExpandDims(Input x, int axis, std::string_view name = "");

}  // namespace tutti
