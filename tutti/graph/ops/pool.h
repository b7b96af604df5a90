#pragma once

#include <array>
#include <string_view>

#include "tutti/graph/input.h"
#include "tutti/graph/ops/padding.h"

// Pooling of NHWC images, with the ops that the gradients are made of.
namespace tutti {

struct PoolOptions {
  std::array<int64_t, 2> window = {2, 2};   // height, width
  std::array<int64_t, 2> strides = {2, 2};  // height, width
  Padding padding = Padding::kValid;        // kSame or kValid
};

// x [n, h, w, c] -> [n, oh, ow, c], the largest value of each window. Padding is ignored; a NaN in
// the window gives NaN.
Output MaxPool(Input x, const PoolOptions& options = {}, std::string_view name = "");

// The mean of each window; padding counts neither in the sum nor in the number.
Output AvgPool(Input x, const PoolOptions& options = {}, std::string_view name = "");

// The mean of each image and channel: [n, h, w, c] -> [n, c].
Output GlobalAvgPool(Input x, std::string_view name = "");

// The gradients. MaxPoolGrad gives dy to the first of equal maxima, in row-major order;
// MaxPoolGradGrad returns the elements of v (shaped like x) at the positions of the maxima.
Output MaxPoolGrad(Input x, Input y, Input dy, const PoolOptions& options = {},
                   std::string_view name = "");
Output MaxPoolGradGrad(Input x, Input y, Input v, const PoolOptions& options = {},
                       std::string_view name = "");
Output AvgPoolGrad(Input dy, Input x_shape, const PoolOptions& options = {},
                   std::string_view name = "");
Output GlobalAvgPoolGrad(Input dy, Input x_shape, std::string_view name = "");

}  // namespace tutti
