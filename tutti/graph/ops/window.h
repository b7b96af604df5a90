#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/graph/ops/padding.h"

// How convolutions and pooling lay windows over an image.
namespace tutti {

// A window along one dimension: output o covers the inputs o * stride - pad_before + t * dilation
// for t in [0, window).
struct WindowDim {
  int64_t input = 0;
  int64_t window = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t pad_before = 0;
  int64_t pad_after = 0;
  int64_t output = 0;
};

// A window over height and width.
struct Window {
  WindowDim height;
  WindowDim width;
};

// The attributes that describe windows, as nodes hold them: strides and dilations are [height,
// width], pads [top, bottom, left, right] (only for EXPLICIT).
struct WindowAttrs {
  std::span<const int64_t> strides;
  std::span<const int64_t> dilations;
  std::string_view padding;
  std::span<const int64_t> pads;
};

// What `attrs` make of inputs and windows of these sizes, with outputs and paddings filled in.
// Sizes may be kUnknownDim; then so is the output. INVALID_ARGUMENT when an attribute is malformed
// or the window does not fit into the input.
absl::StatusOr<Window> ResolveWindow(const WindowAttrs& attrs, int64_t height, int64_t width,
                                     int64_t window_height, int64_t window_width);

// The other direction, for transposed convolution: the sizes that windows with these outputs come
// from: output * stride for SAME, else (output - 1) * stride + extent - pads.
absl::StatusOr<Window> ResolveTransposedWindow(const WindowAttrs& attrs, int64_t output_height,
                                               int64_t output_width, int64_t window_height,
                                               int64_t window_width);

}  // namespace tutti
