#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "tutti/graph/input.h"
#include "tutti/graph/ops/padding.h"

// BiasAdd and convolutions, with the ops that their gradients are made of. Images are NHWC: [batch,
// height, width, channels]. All of these have gradients, so they can be differentiated again.
namespace tutti {

struct Conv2DOptions {
  std::array<int64_t, 2> strides = {1, 1};    // height, width
  std::array<int64_t, 2> dilations = {1, 1};  // distance between a window's taps
  Padding padding = Padding::kSame;
  std::vector<int64_t> pads = {};  // for kExplicit: top, bottom, left, right
};

// x [..., c] + bias [c].
Output BiasAdd(Input x, Input bias, std::string_view name = "");

// x [n, h, w, in] convolved (cross-correlated) with filter [fh, fw, in, out] -> [n, oh, ow, out].
Output Conv2D(Input x, Input filter, const Conv2DOptions& options = {}, std::string_view name = "");

// Each channel has filters of its own: filter [fh, fw, c, multiplier] -> [n, oh, ow, c *
// multiplier], where output channel c * multiplier + m comes from channel c.
Output DepthwiseConv2D(Input x, Input filter, const Conv2DOptions& options = {},
                       std::string_view name = "");

// The transpose of Conv2D as a linear map, which enlarges images: x [n, h, w, in], filter [fh, fw,
// out, in] -> [n, h * stride, w * stride, out] for SAME, [n, (h - 1) * stride + fh, ..., out] for
// VALID.
Output Conv2DTranspose(Input x, Input filter, const Conv2DOptions& options = {},
                       std::string_view name = "");

// The gradients of the above. `x_shape` and `filter_shape` are integer vectors.
Output BiasAddGrad(Input dy, std::string_view name = "");  // [..., c] -> [c], the sum over the rest
Output Conv2DBackpropInput(Input filter, Input dy, Input x_shape, const Conv2DOptions& options = {},
                           std::string_view name = "");
Output Conv2DBackpropFilter(Input x, Input dy, Input filter_shape,
                            const Conv2DOptions& options = {}, std::string_view name = "");
Output DepthwiseConv2DBackpropInput(Input filter, Input dy, Input x_shape,
                                    const Conv2DOptions& options = {}, std::string_view name = "");
Output DepthwiseConv2DBackpropFilter(Input x, Input dy, Input filter_shape,
                                     const Conv2DOptions& options = {}, std::string_view name = "");

}  // namespace tutti
