#pragma once

#include <initializer_list>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

#include "tutti/graph/input.h"

// Transpose, Concat, Split, Slice, Pad, Tile, ....
namespace tutti {

// Dimension i of the result is dimension perm[i] of x. An empty perm reverses them all.
Output Transpose(Input x, const std::vector<int64_t>& perm = {}, std::string_view name = "");

// Joins values along `axis`; their other dimensions are equal.
Output Concat(std::span<const Output> values, int axis, std::string_view name = "",
              std::source_location where = std::source_location::current());
inline Output Concat(std::initializer_list<Output> values, int axis, std::string_view name = "",
                     std::source_location where = std::source_location::current()) {
  return Concat(std::span(values.begin(), values.size()), axis, name, where);
}

// The parts of x along `axis`: `num` equal ones, which must divide the dimension.
std::vector<Output> Split(Input x, int axis, int64_t num, std::string_view name = "");
// The same with parts of the given sizes, which must add up to the dimension.
std::vector<Output> Split(Input x, int axis, const std::vector<int64_t>& sizes,
                          std::string_view name = "");
inline std::vector<Output> Split(Input x, int axis, std::initializer_list<int64_t> sizes,
                                 std::string_view name = "") {
  return Split(x, axis, std::vector<int64_t>(sizes), name);
}

// The block of x that starts at begin[i] and has size[i] elements in dimension i; a size of -1
// means all that follow. Integer vectors with one value per dimension.
Output Slice(Input x, Input begin, Input size, std::string_view name = "");
Output Slice(Input x, const std::vector<int64_t>& begin, const std::vector<int64_t>& size,
             std::string_view name = "");
inline Output Slice(Input x, std::initializer_list<int64_t> begin,
                    std::initializer_list<int64_t> size, std::string_view name = "") {
  return Slice(x, std::vector<int64_t>(begin), std::vector<int64_t>(size), name);
}

// x[begin:end:stride] in each dimension by the rules of Python; dimensions past the end of the
// vectors stay whole. Bit i of a mask concerns dimension i.
struct StridedSliceOptions {
  std::vector<int64_t> begin = {};
  std::vector<int64_t> end = {};
  std::vector<int64_t> strides = {};  // empty: all 1; may be negative, not 0
  int64_t begin_mask = 0;             // set: begin[i] is ignored, the slice starts at the edge
  int64_t end_mask = 0;               // set: end[i] is ignored, the slice goes to the edge
  int64_t shrink_mask = 0;            // set: only x[begin[i]], and the dimension goes away
};
Output StridedSlice(Input x, const StridedSliceOptions& options, std::string_view name = "");

// x with paddings[2*i] elements of `value` before and paddings[2*i+1] behind dimension i.
Output Pad(Input x, const std::vector<int64_t>& paddings, double value = 0,
           std::string_view name = "");

// Values of one shape stacked along a new dimension `axis`.
Output Pack(std::span<const Output> values, int axis = 0, std::string_view name = "",
            std::source_location where = std::source_location::current());
inline Output Pack(std::initializer_list<Output> values, int axis = 0, std::string_view name = "",
                   std::source_location where = std::source_location::current()) {
  return Pack(std::span(values.begin(), values.size()), axis, name, where);
}

// The slices of x along `axis`, without that dimension. Its size must be known when the graph is
// built.
std::vector<Output> Unpack(Input x, int axis = 0, std::string_view name = "");

// x repeated multiples[i] times along dimension i.
Output Tile(Input x, const std::vector<int64_t>& multiples, std::string_view name = "");

// x with the order of the elements turned around along `axes`.
Output Reverse(Input x, const std::vector<int64_t>& axes, std::string_view name = "");

// The gradients of the above that are ops of their own. Shapes are integer vectors.

// `gradient` cut along `axis` into parts of the given shapes: what Concat's inputs receive.
std::vector<Output> ConcatGrad(Input gradient, std::span<const Output> shapes, int axis,
                               std::string_view name = "");
// Zeros of x_shape with `gradient` put at `begin`: what Slice's x receives.
Output SliceGrad(Input gradient, Input x_shape, Input begin, std::string_view name = "");
// Zeros of x_shape with `gradient` put where StridedSlice took its elements from.
Output StridedSliceGrad(Input gradient, Input x_shape, const StridedSliceOptions& options,
                        std::string_view name = "");
// The sum of the copies that Tile made of an x of x_shape.
Output TileGrad(Input gradient, Input x_shape, const std::vector<int64_t>& multiples,
                std::string_view name = "");

}  // namespace tutti
